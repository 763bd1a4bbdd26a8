// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsysreceiver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/confmap"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

const (
	// defaultInterval is W&B's sampling interval.
	defaultInterval = 15 * time.Second
	// minInterval is W&B's smallest one. Much below, a scrape of a busy machine
	// does not come to an end.
	minInterval = 100 * time.Millisecond
	// defaultDelay is shown but not used: left out, the delay is spread.
	defaultDelay             = time.Second
	defaultTimeout           = 10 * time.Second
	defaultDetectionInterval = 5 * time.Minute
	// scrapersKey and metricsKey are sections with handling of their own.
	scrapersKey = "scrapers"
	metricsKey  = "metrics"
	// selfPid is the value of workloads::pid that means the collector itself.
	selfPid = "self"
)

// Config is the receiver's section of a collector configuration. The zero
// section (`wandbsys:` and nothing else) measures everything that is here.
type Config struct {
	// Timing holds collection_interval, initial_delay and timeout; each family
	// may have its own.
	Timing scrapers.Timing `mapstructure:",squash"`
	// MetricsBuilderConfig holds metrics and resource_attributes.
	MetricsBuilderConfig metadata.MetricsBuilderConfig `mapstructure:",squash"`
	// Naming says which names the metrics get.
	Naming naming.Style `mapstructure:"naming"`
	// Label is W&B's x_label.
	Label string `mapstructure:"label"`
	// Extended turns on all metrics that are off by default, but for those that
	// stand under metrics.
	Extended bool `mapstructure:"extended"`
	// RootPath is where the machine's / is mounted; empty means /.
	RootPath string `mapstructure:"root_path"`
	// HostName replaces the name of the machine.
	HostName string `mapstructure:"host_name"`
	// DetectionInterval is how often absent hardware is looked for again.
	DetectionInterval time.Duration `mapstructure:"detection_interval"`
	// Workloads says whose processes are measured beside the machine.
	Workloads WorkloadsConfig `mapstructure:"workloads"`
	// Scrapers holds the section of each family that is on; nil means all, and is
	// not printed, since {} would be read as none.
	Scrapers map[string]scrapers.Config `mapstructure:"scrapers,omitempty"`

	// families are those that this build knows; tests bring their own.
	families []scrapers.Factory
	// delaySet names the families whose initial delay the user chose; the empty
	// name stands for the receiver's own key.
	delaySet map[string]bool
}

func newDefaultConfig(families []scrapers.Factory) *Config {
	return &Config{
		Timing:               scrapers.Timing{CollectionInterval: defaultInterval, InitialDelay: defaultDelay, Timeout: defaultTimeout},
		MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		Naming:               naming.Template,
		DetectionInterval:    defaultDetectionInterval,
		Workloads:            newDefaultWorkloads(),
		families:             families,
	}
}

// receiverKeys is Config without its Unmarshal, so that unknown keys beside
// `scrapers` are refused.
type receiverKeys Config

// Unmarshal decodes the section. Families are known by their key: each one's
// section is laid over its defaults, which follow the receiver's.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	if conf == nil {
		conf = confmap.New()
	}
	own, err := c.ownKeys(conf)
	if err != nil {
		return err
	}
	errs := []error{decodeOwn(own, c)}
	if !conf.IsSet("timeout") {
		clampTimeout(&c.Timing)
	}
	return errors.Join(append(errs, c.unmarshalScrapers(conf))...)
}

// decodeOwn reads all keys but `scrapers`. What decoding refuses it names after the
// type, which users know as Config from every component.
func decodeOwn(own *confmap.Conf, c *Config) error {
	type Config receiverKeys
	return own.Unmarshal((*Config)(c))
}

// clampTimeout makes a timeout that the user did not choose fit the interval. A
// wrong interval is an error of its own.
func clampTimeout(c *scrapers.Timing) {
	if c.CollectionInterval > 0 {
		c.Timeout = min(c.Timeout, c.CollectionInterval)
	}
}

// ownKeys returns what is not below `scrapers`, with the metrics that
// `extended` turns on placed below what the user says of them.
func (c *Config) ownKeys(conf *confmap.Conf) (*confmap.Conf, error) {
	own := confmap.New()
	if err := own.Merge(conf); err != nil {
		return nil, err
	}
	own.Delete(scrapersKey)
	if extended, ok := conf.Get("extended").(bool); !ok || !extended {
		return own, nil
	}
	on, err := offByDefault()
	if err != nil {
		return nil, err
	}
	// A key with nothing after it says nothing, but would win.
	for _, key := range append(on.AllKeys(), metricsKey) {
		if key = strings.TrimSuffix(key, "::enabled"); own.Get(key) == nil {
			own.Delete(key)
		}
	}
	if err := on.Merge(own); err != nil {
		return nil, fmt.Errorf("extended: %w", err)
	}
	return on, nil
}

// offByDefault returns a section that enables every metric that is off by
// default.
func offByDefault() (*confmap.Conf, error) {
	all := confmap.New()
	if err := all.Marshal(metadata.NewDefaultMetricsBuilderConfig()); err != nil {
		return nil, fmt.Errorf("extended: listing the metrics: %w", err)
	}
	metrics, err := all.Sub(metricsKey)
	if err != nil {
		return nil, fmt.Errorf("extended: listing the metrics: %w", err)
	}
	on := map[string]any{}
	for name, section := range metrics.ToStringMap() {
		if values, ok := section.(map[string]any); ok && values["enabled"] == false {
			on[name] = map[string]any{"enabled": true}
		}
	}
	return confmap.NewFromStringMap(map[string]any{metricsKey: on}), nil
}

func (c *Config) unmarshalScrapers(conf *confmap.Conf) error {
	c.delaySet = map[string]bool{"": conf.IsSet("initial_delay")}
	if conf.Get(scrapersKey) == nil {
		c.Scrapers = nil
		return nil
	}
	section, err := conf.Sub(scrapersKey)
	if err != nil {
		return fmt.Errorf("scrapers: must be a map of families: %w", err)
	}
	values := section.ToStringMap()
	if len(values) == 0 {
		return errors.New("scrapers: {} turns every family off; leave the key out to have all, or name some of " + c.familyNames())
	}
	c.Scrapers = map[string]scrapers.Config{}
	var errs []error
	for _, name := range sortedKeys(values) {
		cfg, err := c.unmarshalFamily(name, section)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.Scrapers[name] = cfg
	}
	return errors.Join(errs...)
}

// unmarshalFamily decodes one section. A key with nothing after it means "on,
// with defaults".
func (c *Config) unmarshalFamily(name string, section *confmap.Conf) (scrapers.Config, error) {
	factory, ok := c.factory(name)
	if !ok {
		return nil, fmt.Errorf("scrapers::%s: unknown family; the families are %s", name, c.familyNames())
	}
	cfg := c.familyDefaults(factory)
	sub, err := section.Sub(name)
	if err != nil {
		return nil, fmt.Errorf("scrapers::%s: must be a map of settings: %w", name, err)
	}
	if err := sub.Unmarshal(cfg); err != nil {
		return nil, fmt.Errorf("scrapers::%s: %w", name, err)
	}
	common := cfg.Common()
	if sub.IsSet("collection_interval") && !sub.IsSet("timeout") {
		clampTimeout(&common.Timing)
	}
	c.delaySet[name] = sub.IsSet("initial_delay")
	return cfg, nil
}

// familyDefaults returns a family's default section, with the receiver's
// settings for what both have.
func (c *Config) familyDefaults(factory scrapers.Factory) scrapers.Config {
	cfg := factory.DefaultConfig()
	common := cfg.Common()
	common.Timing = c.Timing
	common.MaxSeries = scrapers.DefaultMaxSeries
	return cfg
}

// Validate checks what concerns the receiver as a whole. confmap calls the
// Validate of every section below by itself.
func (c *Config) Validate() error {
	errs := []error{validateRootPath(c.RootPath), c.validatePid(), c.validateHolders()}
	if c.DetectionInterval <= 0 {
		errs = append(errs, fmt.Errorf("detection_interval: %s: must be above 0", c.DetectionInterval))
	}
	errs = append(errs, validateTiming(c.Timing), validateIdentity(c.MetricsBuilderConfig.ResourceAttributes))
	for _, name := range sortedKeys(c.Scrapers) {
		errs = append(errs, c.validateCommon(name))
	}
	if strings.ContainsAny(c.Label, "\n\r\x00") {
		errs = append(errs, fmt.Errorf("label: %q: must be one line", c.Label))
	}
	return errors.Join(errs...)
}

// validateCommon checks the keys that all families have. It is done here, since
// confmap puts the name of a squashed field into the path of its errors.
func (c *Config) validateCommon(name string) error {
	var errs []error
	common := c.Scrapers[name].Common()
	if common.MaxSeries <= 0 {
		errs = append(errs, fmt.Errorf("scrapers::%s::max_series: %d: must be above 0", name, common.MaxSeries))
	}
	// What is inherited is reported once.
	if common.Timing != c.Timing {
		if err := validateTiming(common.Timing); err != nil {
			errs = append(errs, fmt.Errorf("scrapers::%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// validateTiming names the keys as the user wrote them.
func validateTiming(t scrapers.Timing) error {
	var errs []error
	if t.CollectionInterval < minInterval {
		errs = append(errs, fmt.Errorf("collection_interval: %s: must be %s at least", t.CollectionInterval, minInterval))
	}
	if t.InitialDelay < 0 {
		errs = append(errs, fmt.Errorf("initial_delay: %s: must not be negative", t.InitialDelay))
	}
	switch {
	case t.Timeout <= 0:
		errs = append(errs, fmt.Errorf("timeout: %s: must be above 0, since a source may never answer", t.Timeout))
	case t.CollectionInterval >= minInterval && t.Timeout > t.CollectionInterval:
		errs = append(errs, fmt.Errorf("timeout: %s: must not be longer than collection_interval (%s)", t.Timeout, t.CollectionInterval))
	}
	return errors.Join(errs...)
}

// statTimeout is how long the root path may take to answer.
const statTimeout = 2 * time.Second

func validateRootPath(path string) error {
	if path == "" {
		return nil
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("root_path: %q: must be absolute", path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statTimeout)
	defer cancel()
	info, err := guard.Call(ctx, new(guard.Slot), func(context.Context) (os.FileInfo, error) { return os.Stat(path) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("root_path: %w; mount the machine's / there", err)
	case err != nil:
		return fmt.Errorf("root_path: %q: %w", path, err)
	case !info.IsDir():
		return fmt.Errorf("root_path: %q: is not a directory", path)
	}
	return nil
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// validateIdentity keeps what tells one resource from another: exporters merge
// resources without it, silently.
func validateIdentity(attrs metadata.ResourceAttributesConfig) error {
	var errs []error
	if !attrs.ServiceInstanceID.Enabled {
		errs = append(errs, errors.New("resource_attributes::service.instance.id: cannot be switched off, since exporters would merge the resources"))
	}
	if !attrs.ServiceName.Enabled {
		errs = append(errs, errors.New("resource_attributes::service.name: cannot be switched off, since exporters would merge the resources"))
	}
	return errors.Join(errs...)
}

func (c *Config) factory(name string) (scrapers.Factory, bool) {
	i := slices.IndexFunc(c.families, func(f scrapers.Factory) bool { return f.Name == name })
	if i < 0 {
		return scrapers.Factory{}, false
	}
	return c.families[i], true
}

func (c *Config) familyNames() string {
	names := make([]string, 0, len(c.families))
	for _, f := range c.families {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
