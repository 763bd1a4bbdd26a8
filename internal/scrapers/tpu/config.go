// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/confmap"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/fetch"
)

const (
	// defaultPort is the one that libtpu listens on.
	defaultPort = "8431"
	// portsVariable lists the ports of a machine's training processes.
	portsVariable = "TPU_RUNTIME_METRICS_PORTS"
	endpointsKey  = "endpoints"
	pluginKey     = "device_plugin"

	// minSDKInterval is how often Google's own agent asks, and the default. More often
	// has broken the control agent of machines.
	minSDKInterval = 10 * time.Second
)

// Config is the section `scrapers::tpu`.
type Config struct {
	// CommonConfig holds the keys that every family has.
	CommonConfig scrapers.CommonConfig `mapstructure:",squash"`

	// Endpoints are the metric services of training processes; a text in place of one
	// is its host:port. None means localhost, on the ports of TPU_RUNTIME_METRICS_PORTS
	// where the collector's environment has that, else on 8431, and only where there is
	// a TPU.
	Endpoints []EndpointConfig `mapstructure:"endpoints"`
	// DevicePlugin is the metrics endpoint of GKE's device plugin; a text in place of it
	// is its URL. Nil means that it is not asked.
	DevicePlugin *PluginConfig `mapstructure:"device_plugin"`
	// Distributions says in what form distributions are given.
	Distributions distributionForm `mapstructure:"distributions"`
	// DistributionWindow says since when statistics of distributions count.
	DistributionWindow window `mapstructure:"distribution_window"`
	// SDK reads libtpu in a process of its own.
	SDK SDKConfig `mapstructure:"sdk"`
}

// EndpointConfig is one training process.
type EndpointConfig struct {
	// ClientConfig is the usual gRPC client's. Without `tls` the connection is plain, as
	// libtpu's service is.
	ClientConfig configgrpc.ClientConfig `mapstructure:",squash"`
}

// PluginConfig is the endpoint of GKE's device plugin.
type PluginConfig struct {
	// ClientConfig is the usual HTTP client's.
	ClientConfig confighttp.ClientConfig `mapstructure:",squash"`
}

// SDKConfig says how libtpu is read. Nothing is unless it is enabled.
type SDKConfig struct {
	// Enabled turns it on. libtpu is one more client of the machine's control agent then.
	Enabled bool `mapstructure:"enabled"`
	// ReaderPath is the program libtpu-reader; empty is the one beside the collector.
	ReaderPath string `mapstructure:"reader_path"`
	// LibraryPath is libtpu.so; empty means that it is looked for where it is installed.
	LibraryPath string `mapstructure:"library_path"`
	// Interval is the least time between two reads.
	Interval time.Duration `mapstructure:"interval"`
}

// distributionForm is how distributions are given.
type distributionForm string

const (
	formQuantiles distributionForm = "quantiles"
	formHistogram distributionForm = "histogram"
	formBoth      distributionForm = "both"
)

// Validate tells whether the value is known.
func (f distributionForm) Validate() error {
	switch f {
	case formQuantiles, formHistogram, formBoth:
		return nil
	}
	return fmt.Errorf("unknown value %q; use quantiles, histogram or both", string(f))
}

// window is since when statistics count.
type window string

const (
	// windowJob is all of a job, as the runtime counts and W&B shows.
	windowJob window = "job"
	// windowInterval is the time since the last scrape.
	windowInterval window = "interval"
)

// Validate tells whether the value is known.
func (w window) Validate() error {
	switch w {
	case windowJob, windowInterval:
		return nil
	}
	return fmt.Errorf("unknown value %q; use job or interval", string(w))
}

func defaultConfig() scrapers.Config {
	return &Config{Distributions: formQuantiles, DistributionWindow: windowJob, SDK: SDKConfig{Interval: minSDKInterval}}
}

// Common implements scrapers.Config.
func (c *Config) Common() *scrapers.CommonConfig { return &c.CommonConfig }

// Unmarshal decodes the section: each endpoint is laid over the defaults, and a text in
// place of one is its host:port.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	own := confmap.New()
	if err := own.Merge(conf); err != nil {
		return err
	}
	own.Delete(endpointsKey)
	own.Delete(pluginKey)
	return errors.Join(
		decodeOwn(own, c),
		c.unmarshalEndpoints(conf.Get(endpointsKey)),
		c.unmarshalPlugin(conf.Get(pluginKey)),
	)
}

// plainConfig is Config without its Unmarshal.
type plainConfig Config

// decodeOwn reads all keys but `endpoints`. What decoding refuses it names after the
// type, which users know as Config from every component.
func decodeOwn(own *confmap.Conf, c *Config) error {
	type Config plainConfig
	return own.Unmarshal((*Config)(c))
}

func (c *Config) unmarshalEndpoints(value any) error {
	if value == nil {
		return nil
	}
	list, ok := value.([]any)
	if !ok {
		return errors.New("endpoints: must be a list of host:port, or of settings")
	}
	c.Endpoints = make([]EndpointConfig, len(list))
	var errs []error
	for i := range list {
		if err := unmarshalEndpoint(&c.Endpoints[i], list[i]); err != nil {
			errs = append(errs, fmt.Errorf("endpoints::%d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func unmarshalEndpoint(e *EndpointConfig, value any) error {
	switch value := value.(type) {
	case string:
		*e = plainEndpoint(value)
		return nil
	case map[string]any:
		sub := confmap.NewFromStringMap(value)
		*e = plainEndpoint("")
		if sub.IsSet("tls") { // who says something of TLS wants it
			e.ClientConfig.TLS.Insecure = false
		}
		return sub.Unmarshal(e)
	}
	return errors.New("must be host:port, or a map of settings")
}

func (c *Config) unmarshalPlugin(value any) error {
	p := &PluginConfig{ClientConfig: confighttp.NewDefaultClientConfig()}
	switch value := value.(type) {
	case nil:
		return nil
	case string:
		p.ClientConfig.Endpoint = value
	case map[string]any:
		if err := confmap.NewFromStringMap(value).Unmarshal(p); err != nil {
			return fmt.Errorf("%s: %w", pluginKey, err)
		}
	default:
		return fmt.Errorf("%s: must be a URL, or a map of settings", pluginKey)
	}
	c.DevicePlugin = p
	return nil
}

func plainEndpoint(address string) EndpointConfig {
	e := EndpointConfig{ClientConfig: configgrpc.NewDefaultClientConfig()}
	e.ClientConfig.Endpoint = address
	e.ClientConfig.TLS.Insecure = true
	e.ClientConfig.BalancerName = "" // one address needs none
	return e
}

// Validate checks the section; the receiver checks the common keys.
func (c *Config) Validate() error {
	errs := []error{c.SDK.validate(), c.DevicePlugin.validate()}
	seen := map[string]bool{}
	for i := range c.Endpoints {
		address := c.Endpoints[i].ClientConfig.Endpoint
		if c.Endpoints[i].ClientConfig.Validate() != nil {
			continue // confmap reports what is wrong
		}
		if err := checkAddress(address); err != nil {
			errs = append(errs, fmt.Errorf("endpoints::%d: %w", i, err))
		} else if seen[address] {
			errs = append(errs, fmt.Errorf("endpoints::%d: %q: is listed twice", i, address))
		}
		seen[address] = true
	}
	return errors.Join(errs...)
}

func (c *PluginConfig) validate() error {
	if c == nil {
		return nil
	}
	if _, err := fetch.ParseTarget(c.ClientConfig.Endpoint); err != nil {
		return fmt.Errorf("%s: %w", pluginKey, err)
	}
	return nil
}

// checkAddress wants host:port.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || !isPort(port) {
		return fmt.Errorf("%q: must be host:port", address)
	}
	return nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

func (c *SDKConfig) validate() error {
	return errors.Join(
		checkPath("sdk::reader_path", c.ReaderPath),
		checkPath("sdk::library_path", c.LibraryPath),
		checkInterval(c.Interval),
	)
}

func checkPath(key, path string) error {
	if path != "" && !filepath.IsAbs(path) {
		return fmt.Errorf("%s: %q: must be absolute", key, path)
	}
	return nil
}

func checkInterval(d time.Duration) error {
	if d < minSDKInterval {
		return fmt.Errorf("sdk::interval: %s: must be at least %s, for the sake of the TPU's control agent", d, minSDKInterval)
	}
	return nil
}

// endpoints are the configured ones, else the default.
func (c *Config) endpoints(getenv func(string) string) (all []EndpointConfig, configured bool) {
	if len(c.Endpoints) > 0 {
		return c.Endpoints, true
	}
	seen := map[string]bool{} // one that is asked twice would be two jobs
	for port := range strings.SplitSeq(getenv(portsVariable), ",") {
		if port = strings.TrimSpace(port); isPort(port) && !seen[port] {
			seen[port] = true
			all = append(all, plainEndpoint(net.JoinHostPort("localhost", port)))
		}
	}
	if len(all) == 0 {
		all = []EndpointConfig{plainEndpoint(net.JoinHostPort("localhost", defaultPort))}
	}
	return all, false
}
