// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsysreceiver

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/scraper"
	"go.opentelemetry.io/collector/scraper/scraperhelper"
	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/kubelet"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

const (
	// shutdownTimeout bounds how long the families get to stop.
	shutdownTimeout = 5 * time.Second
	// maxSpread bounds how far first scrapes are spread over a cluster.
	maxSpread = 5 * time.Second
)

// sysReceiver runs one controller per family, so that a family that hangs
// delays only itself.
type sysReceiver struct {
	logger      *zap.Logger
	telemetry   *metadata.TelemetryBuilder
	health      *health
	controllers []receiver.Metrics
	off         []string
	// compiledIn and notCompiledIn are the families of this build, and the others
	// with the reason.
	compiledIn, notCompiledIn []string
	workloads                 *workload.Discovery
	// kubernetes says whom the names of containers are asked for.
	kubernetes kubelet.Config
	settings   component.TelemetrySettings

	// run ends when Shutdown begins. Everything that a scrape does is under it,
	// since the controllers do not end a running scrape.
	run  context.Context
	stop context.CancelFunc

	shutdown    sync.Once
	shutdownErr error
}

func newReceiver(ctx context.Context, set receiver.Settings, cfg *Config, next consumer.Metrics) (*sysReceiver, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, fmt.Errorf("making the receiver's own metrics: %w", err)
	}
	r := &sysReceiver{logger: set.Logger, settings: set.TelemetrySettings, kubernetes: cfg.Workloads.Kubernetes, telemetry: telemetry, health: newHealth(set.ID.String())}
	r.run, r.stop = context.WithCancel(context.Background())
	options, err := cfg.Workloads.options(cfg.RootPath, set.Logger)
	if err != nil {
		return nil, fmt.Errorf("workloads::%w", err)
	}
	r.workloads = workload.NewDiscovery(options)
	hostName := identity.HostName(ctx, cfg.HostName, cfg.RootPath)
	machine := identity.New(hostName, cfg.Label, cfg.RootPath, cfg.MetricsBuilderConfig.ResourceAttributes)
	measured := &gpus.Measured{}
	for _, factory := range cfg.families {
		if factory.NotCompiledIn == "" {
			r.compiledIn = append(r.compiledIn, factory.Name)
		} else {
			r.notCompiledIn = append(r.notCompiledIn, factory.Name+": "+factory.NotCompiledIn)
		}
		section, on := cfg.section(factory)
		if !on {
			r.off = append(r.off, factory.Name)
			continue
		}
		settings := scrapers.Settings{
			Receiver: set, Metrics: cfg.MetricsBuilderConfig, Extended: cfg.Extended,
			Identity: machine, RootPath: cfg.RootPath, DetectionInterval: cfg.DetectionInterval, Target: options.Target, Workloads: r.workloads, GPUs: measured,
		}
		settings.Receiver.Logger = set.Logger.With(zap.String("family", factory.Name))
		timing := section.Common().Timing
		if !cfg.delaySet[""] && !cfg.delaySet[factory.Name] {
			timing.InitialDelay = spread(hostName, factory.Name, timing.CollectionInterval)
		}
		if err := r.add(settings, cfg, factory, section, timing, next); err != nil {
			return nil, fmt.Errorf("%s: %w", factory.Name, err)
		}
	}
	return r, nil
}

// section returns the settings of a family, and whether the family is on.
func (c *Config) section(factory scrapers.Factory) (scrapers.Config, bool) {
	if c.Scrapers == nil {
		return c.familyDefaults(factory), true
	}
	cfg, on := c.Scrapers[factory.Name]
	return cfg, on
}

// add makes a family and its controller.
func (r *sysReceiver) add(set scrapers.Settings, cfg *Config, factory scrapers.Factory, section scrapers.Config, timing scrapers.Timing, next consumer.Metrics) error {
	s, err := factory.New(set, section)
	if err != nil {
		return err
	}
	f := &family{
		name:              factory.Name,
		scraper:           s,
		maxSeries:         section.Common().MaxSeries,
		timeout:           timing.Timeout,
		detectionInterval: cfg.DetectionInterval,
		run:               r.run,
		logger:            set.Receiver.Logger,
		health:            r.health.add(factory.Name),
	}
	scraperType, err := component.NewType(factory.Name)
	if err != nil {
		return err
	}
	metrics, err := scraper.NewMetrics(f.scrape, scraper.WithStart(f.start), scraper.WithShutdown(f.shutdown))
	if err != nil {
		return err
	}
	forward := &forwarder{next: next, names: naming.New(cfg.Naming, cfg.Label), run: r.run, timeout: timing.Timeout}
	consume, err := consumer.NewMetrics(forward.consume, consumer.WithCapabilities(next.Capabilities()))
	if err != nil {
		return err
	}
	controllerConfig := timing.Controller()
	controller, err := scraperhelper.NewMetricsController(&controllerConfig, set.Receiver, consume,
		scraperhelper.AddMetricsScraper(scraperType, metrics))
	if err != nil {
		return err
	}
	r.controllers = append(r.controllers, controller)
	return nil
}

// Start starts every family. Nothing here waits for a source.
func (r *sysReceiver) Start(ctx context.Context, host component.Host) error {
	r.logger.Info("Families", zap.Strings("compiled_in", r.compiledIn), zap.Strings("not_compiled_in", r.notCompiledIn))
	for _, name := range r.off {
		r.logger.Info("Family is off", zap.String("family", name),
			zap.String("reason", "not listed under scrapers"), zap.String("cure", "add scrapers::"+name))
		r.health.addOff(name)
	}
	if err := r.startNames(ctx, host); err != nil {
		return err
	}
	if err := r.health.start(r.telemetry, host); err != nil {
		return fmt.Errorf("registering the receiver's own metrics: %w", err)
	}
	for _, c := range r.controllers {
		if err := c.Start(ctx, host); err != nil {
			return err
		}
	}
	return nil
}

// startNames makes the client for names, if any is configured. It asks nobody yet.
func (r *sysReceiver) startNames(ctx context.Context, host component.Host) error {
	if !r.kubernetes.Kubelet.HasValue() && !r.kubernetes.PodResources.HasValue() {
		return nil
	}
	client, err := kubelet.New(ctx, r.kubernetes, host, r.settings)
	if err != nil {
		return fmt.Errorf("workloads::kubernetes: %w", err)
	}
	r.workloads.SetNames(client)
	return nil
}

// Shutdown ends what is running, then stops the families in parallel. Each is
// stopped once, since a controller does not survive a second time; one that
// does not stop in time is left behind.
func (r *sysReceiver) Shutdown(ctx context.Context) error {
	r.shutdown.Do(func() {
		r.health.stop()
		r.stop()
		r.shutdownErr = r.stopControllers(ctx)
		r.workloads.Close()
		r.telemetry.Shutdown()
	})
	return r.shutdownErr
}

func (r *sysReceiver) stopControllers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	results := make(chan error, len(r.controllers))
	for _, c := range r.controllers {
		go func() { results <- c.Shutdown(ctx) }()
	}
	var errs []error
	for range r.controllers {
		select {
		case err := <-results:
			errs = append(errs, err)
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("stopping the families: %w", context.Cause(ctx)))...)
		}
	}
	return errors.Join(errs...)
}

// spread returns a delay within the interval that depends on the machine and
// the family only, so that agents started together do not scrape in step.
func spread(hostName, family string, interval time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(hostName + "\x00" + family))
	window := uint64(min(interval, maxSpread) / time.Millisecond)
	if window == 0 {
		return 0
	}
	return time.Duration(h.Sum64()%window) * time.Millisecond
}
