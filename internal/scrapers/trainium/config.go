// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/fetch"
)

// requestTimeout is how long an answer may take where nothing is configured.
const requestTimeout = 5 * time.Second

// Config is the section `scrapers::trainium`.
type Config struct {
	// CommonConfig holds the keys that every family has. The tool's period is the
	// collection interval in whole seconds, at least one.
	CommonConfig scrapers.CommonConfig `mapstructure:",squash"`

	// NeuronMonitorPath is the tool; empty means that it is looked for in PATH and
	// where AWS installs it.
	NeuronMonitorPath string `mapstructure:"neuron_monitor_path"`
	// TagFilter is a regular expression (RE2) for the tags (NEURON_PROCESS_TAG, else
	// the pid) of the runtimes that are measured; empty means all. The tool applies it.
	TagFilter string `mapstructure:"tag_filter"`
	// ReportIdle reports utilisation 0 for the cores that no runtime lists. It does
	// so only when all runtimes could be read.
	ReportIdle bool `mapstructure:"report_idle"`
	// RuntimePoints adds points of each runtime to those of all: on the machine's
	// resource, with the attributes neuron.runtime.pid and neuron.runtime.tag.
	RuntimePoints bool `mapstructure:"runtime_points"`
	// Prometheus is an endpoint of neuron-monitor-prometheus to read in place of
	// running the tool. It is not used beside neuron_monitor_path, whose tool tells
	// more: the parts of the host's memory, and whose the runtimes are.
	Prometheus configoptional.Optional[PrometheusConfig] `mapstructure:"prometheus"`
}

// PrometheusConfig is the section `scrapers::trainium::prometheus`.
type PrometheusConfig struct {
	// ClientConfig has the endpoint's URL, TLS, authentication, proxy and headers.
	ClientConfig confighttp.ClientConfig `mapstructure:",squash"`
	// MaxBodySize is the largest answer, decompressed, in bytes.
	MaxBodySize int `mapstructure:"max_body_size"`
}

// defaultEndpoint is where the exporter is by default.
const defaultEndpoint = "http://localhost:8000/metrics"

func defaultConfig() scrapers.Config {
	client := confighttp.NewDefaultClientConfig()
	client.Endpoint = defaultEndpoint
	return &Config{Prometheus: configoptional.Default(PrometheusConfig{
		ClientConfig: client, MaxBodySize: exposition.DefaultLimits().BodySize,
	})}
}

// Common implements scrapers.Config.
func (c *Config) Common() *scrapers.CommonConfig { return &c.CommonConfig }

// Validate checks the section; the receiver checks the common keys.
func (c *Config) Validate() error {
	return errors.Join(checkPath(c.NeuronMonitorPath), checkFilter(c.TagFilter), c.checkExporter())
}

// usesExporter tells whether the endpoint is read.
func (c *Config) usesExporter() bool { return c.Prometheus.HasValue() && c.NeuronMonitorPath == "" }

func (c *Config) checkExporter() error {
	if !c.Prometheus.HasValue() {
		return nil
	}
	p := c.Prometheus.Get()
	var errs []error
	if _, err := fetch.ParseTarget(p.ClientConfig.Endpoint); err != nil {
		errs = append(errs, fmt.Errorf("prometheus: %w", err))
	}
	switch own, family := p.ClientConfig.Timeout, c.CommonConfig.Timing.Timeout; {
	case own < 0:
		errs = append(errs, fmt.Errorf("prometheus: timeout: %s: must be above 0", own))
	case family > 0 && own > family:
		errs = append(errs, fmt.Errorf("prometheus: timeout: %s: must not be longer than the family's timeout (%s)", own, family))
	}
	if p.MaxBodySize <= 0 {
		errs = append(errs, fmt.Errorf("prometheus: max_body_size: %d: must be above 0", p.MaxBodySize))
	}
	if c.usesExporter() && c.TagFilter != "" {
		errs = append(errs, errors.New("tag_filter: has no effect with prometheus: set it in the configuration of that neuron-monitor"))
	}
	return errors.Join(errs...)
}

// timeout is how long a request may take.
func (p *PrometheusConfig) timeout() time.Duration {
	if p.ClientConfig.Timeout > 0 {
		return p.ClientConfig.Timeout
	}
	return requestTimeout
}

func checkPath(path string) error {
	if path != "" && !filepath.IsAbs(path) {
		return fmt.Errorf("neuron_monitor_path: %q: must be absolute", path)
	}
	return nil
}

func checkFilter(expression string) error {
	if _, err := regexp.Compile(expression); err != nil {
		return fmt.Errorf("tag_filter: %w", err)
	}
	return nil
}

// period is the tool's: it takes whole seconds.
func (c *Config) period() time.Duration {
	return max(c.CommonConfig.Timing.CollectionInterval.Truncate(time.Second), time.Second)
}
