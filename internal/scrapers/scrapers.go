// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package scrapers is the contract between the receiver and its metric families.
// A family is a folder below this one; the receiver knows it by its Factory.
package scrapers

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/scraper/scraperhelper"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// DefaultMaxSeries bounds the data points that a family may yield per scrape.
const DefaultMaxSeries = 20_000

// Timing has the keys of a scraper controller. The controller's own type would
// check them under names that no user wrote.
type Timing struct {
	// CollectionInterval is the time between scrapes.
	CollectionInterval time.Duration `mapstructure:"collection_interval"`
	// InitialDelay is the wait before the first scrape.
	InitialDelay time.Duration `mapstructure:"initial_delay"`
	// Timeout is the time for one scrape.
	Timeout time.Duration `mapstructure:"timeout"`
}

// Controller returns the controller's form.
func (t Timing) Controller() scraperhelper.ControllerConfig {
	c := scraperhelper.NewDefaultControllerConfig()
	c.CollectionInterval, c.InitialDelay, c.Timeout = t.CollectionInterval, t.InitialDelay, t.Timeout
	return c
}

// CommonConfig holds the keys that every family's section has. What a section
// leaves out is taken from the receiver, which also validates them.
type CommonConfig struct {
	// Timing says when the family scrapes, and how long it may take.
	Timing Timing `mapstructure:",squash"`
	// MaxSeries is the largest number of data points in one scrape.
	MaxSeries int `mapstructure:"max_series"`
}

// Config is a family's section below `scrapers`: a pointer to a struct with a
// squashed field of type CommonConfig.
type Config interface {
	Common() *CommonConfig
}

// Target is the process that is measured beside the machine.
type Target = workload.Target

// Settings is what a family gets from the receiver.
type Settings struct {
	// Receiver holds id, logger (with the family's name) and telemetry.
	Receiver receiver.Settings
	// Metrics says which metrics and resource attributes are on.
	Metrics metadata.MetricsBuilderConfig
	// Extended says that the metrics that are off by default were asked for. A few
	// are on by default for one maker's devices, and with this for the others'.
	Extended bool
	// Identity makes the resources.
	Identity *identity.Machine
	// RootPath is where the machine's / is seen; empty means /.
	RootPath string
	// DetectionInterval is how often hardware that does not answer is tried again.
	DetectionInterval time.Duration
	// Target is the configured process.
	Target Target
	// Workloads finds the configured process and all other workloads on Linux.
	Workloads *workload.Discovery
	// GPUs tells which GPUs the families measure themselves. It is the same for all.
	GPUs *gpus.Measured
}

// Scraper is one family at work.
type Scraper interface {
	// Start prepares the family without any blocking probe.
	Start(ctx context.Context, host component.Host) error
	// Scrape reads every source once and returns what there is, whatever else
	// failed. The error is nil, an *AbsentError when the hardware is not here,
	// or joins (errors.Join) a *SourceError for each source that failed and a
	// *GoneError for each thing that is gone. It is never called twice at a time.
	Scrape(ctx context.Context) (pmetric.Metrics, error)
	// Shutdown frees what the family holds. It is not called while a scrape
	// hangs.
	Shutdown(ctx context.Context) error
}

// Primer is implemented by families that count from the start of the receiver:
// Prime takes the baseline, before the first scrape and off the start path.
type Primer interface {
	Prime(ctx context.Context)
}

// Factory makes the scraper of one family.
type Factory struct {
	// Name is the key below `scrapers`.
	Name string
	// DefaultConfig returns a fresh section with the family's defaults.
	DefaultConfig func() Config
	// TellsHolders says that the family tells which processes hold its devices.
	TellsHolders bool
	// NotCompiledIn says why the family is not in this build; empty when it is.
	NotCompiledIn string
	// New makes a scraper from a validated section. It does no I/O.
	New func(Settings, Config) (Scraper, error)
}

// AbsentError says that the hardware of a family is not on this machine.
type AbsentError struct {
	// Reason names the cause: "no amdgpu driver".
	Reason string
	// Cure says what would change it: "load the amdgpu driver".
	Cure string
}

// Error implements error.
func (e *AbsentError) Error() string {
	if e.Cure == "" {
		return e.Reason
	}
	return e.Reason + "; " + e.Cure
}

// SourceError says that one source of a family did not answer while others may
// have. A fault is followed by its Source: it is logged when it begins and when
// it ends, whatever the text of Err does meanwhile. Where a source can have several
// troubles, Err has a method Cause() string, as a [Fault] does: when that changes it is
// logged anew.
type SourceError struct {
	// Source names what failed: "statfs /mnt/nfs", "GPU 3".
	Source string
	Err    error
}

// Error implements error.
func (e *SourceError) Error() string { return e.Source + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *SourceError) Unwrap() error { return e.Err }

// Fault is why a source gave nothing, for the Err of a [SourceError]: one whose text
// may change while the trouble stays.
type Fault struct {
	cause string
	err   error
}

// NewFault returns a fault. The cause tells one trouble from the next.
func NewFault(cause string, err error) *Fault { return &Fault{cause: cause, err: err} }

// Error implements error.
func (f *Fault) Error() string { return f.err.Error() }

// Unwrap returns the error behind it.
func (f *Fault) Unwrap() error { return f.err }

// Cause tells one trouble from the next, see [SourceError].
func (f *Fault) Cause() string { return f.cause }

// GoneError says that something the user asked for by name is no longer there
// although nothing is broken, such as a process that ended. It is logged once
// and does not make a family unhealthy.
type GoneError struct {
	What string
}

// Error implements error.
func (e *GoneError) Error() string { return e.What }

// SourceShare is the part of a family's timeout after which its sources give
// up, so that what did answer still gets out in time.
const SourceShare = 0.8

// SourceTimeout is the time that sources have within a scrape's timeout.
func SourceTimeout(timeout time.Duration) time.Duration {
	return time.Duration(float64(timeout) * SourceShare)
}
