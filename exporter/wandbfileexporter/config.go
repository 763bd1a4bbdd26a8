// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfileexporter

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/runs"
	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/template"
)

// Which runs are written.
const (
	runsHost      = "host"
	runsWorkloads = "workloads"
	runsBoth      = "both"
)

const (
	megabyte = 1 << 20
	// maxMegabytes are no more than can be counted in bytes.
	maxMegabytes = 1 << 42
	minInterval  = 100 * time.Millisecond
)

// Config is the configuration of the exporter.
type Config struct {
	// Directory is W&B's directory, which holds a folder per run. It is made if need be.
	Directory string `mapstructure:"directory"`
	// Runs says of which resources there are runs: host, workloads or both.
	Runs string `mapstructure:"runs"`
	// Interval is how long the parts of a record are waited for: the receiver's
	// collection_interval, or more.
	Interval time.Duration `mapstructure:"interval"`
	// IncludeUnknown writes metrics that W&B has no tag for under their own name.
	IncludeUnknown bool `mapstructure:"include_unknown"`

	// Templates of what a run is called; see the README.
	Entity      string   `mapstructure:"entity"`
	Project     string   `mapstructure:"project"`
	Group       string   `mapstructure:"group"`
	JobType     string   `mapstructure:"job_type"`
	DisplayName string   `mapstructure:"display_name"`
	Notes       string   `mapstructure:"notes"`
	Tags        []string `mapstructure:"tags"`

	// Rotation says when a run ends and the next one of the same resource begins.
	Rotation Rotation `mapstructure:"rotation"`
	// MaxDiskMegabytes is how much room all runs of ours in the directory may take;
	// the oldest finished ones are removed. 0 is any.
	MaxDiskMegabytes float64 `mapstructure:"max_disk_megabytes"`
	// MaxRuns is how many runs may be open.
	MaxRuns int `mapstructure:"max_runs"`
	// IdleTimeout is after how long without data a run is finished. 0 is never.
	IdleTimeout time.Duration `mapstructure:"idle_timeout"`
	// Fsync says when data are made to survive a crash of the machine: never, interval or record.
	Fsync runs.Sync `mapstructure:"fsync"`

	Timeout exporterhelper.TimeoutConfig                             `mapstructure:",squash"`
	Retry   configretry.BackOffConfig                                `mapstructure:"retry_on_failure"`
	Queue   configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
}

// names reads the templates. The error names all keys with one that is wrong.
func (c *Config) names() (runs.Names, error) {
	var names runs.Names
	var errs []error
	parse := func(key, text string) template.Template {
		t, err := template.Parse(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
		return t
	}
	names.Entity = parse("entity", c.Entity)
	names.Project = parse("project", c.Project)
	names.Group = parse("group", c.Group)
	names.JobType = parse("job_type", c.JobType)
	names.DisplayName = parse("display_name", c.DisplayName)
	names.Notes = parse("notes", c.Notes)
	for i, text := range c.Tags {
		names.Tags = append(names.Tags, parse(fmt.Sprintf("tags::%d", i), text))
	}
	return names, errors.Join(errs...)
}

// sizes returns the bytes that one log and all logs may have, 0 for any number. One
// log has at most half of all: else what was kept would go together with it.
func (c *Config) sizes() (one, all int64) {
	one, all = int64(c.Rotation.MaxMegabytes*megabyte), int64(c.MaxDiskMegabytes*megabyte)
	if all > 0 && (one == 0 || one > all/2) {
		one = all / 2
	}
	return one, all
}

// Rotation bounds one run. 0 is no limit.
type Rotation struct {
	MaxMegabytes float64       `mapstructure:"max_megabytes"`
	MaxAge       time.Duration `mapstructure:"max_age"`
}

func createDefaultConfig() component.Config {
	queue := exporterhelper.NewDefaultQueueConfig()
	queue.NumConsumers = 1
	retry := configretry.NewDefaultBackOffConfig()
	// A full disk is full for longer than a backend is away. The queue bounds what waits.
	retry.MaxElapsedTime = 0
	return &Config{
		Runs:             runsHost,
		Interval:         15 * time.Second,
		Project:          "wandbsys",
		Group:            "{slurm.job.id|wandb.run_id|host.name}",
		JobType:          "{wandbsys.workload.kind|'host'}",
		DisplayName:      "{service.instance.id|k8s.pod.name|container.name|host.name|service.name}",
		Tags:             []string{"wandbsys"},
		Rotation:         Rotation{MaxMegabytes: 100, MaxAge: 24 * time.Hour},
		MaxDiskMegabytes: 2048,
		MaxRuns:          512,
		IdleTimeout:      5 * time.Minute,
		Fsync:            runs.SyncNever,
		Timeout:          exporterhelper.NewDefaultTimeoutConfig(),
		Retry:            retry,
		Queue:            configoptional.Some(queue),
	}
}

// Validate reports all that is wrong, with the keys as the user wrote them.
func (c *Config) Validate() error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(c.Directory == "", "directory: must be set, e.g. /var/lib/wandbsys/wandb")
	refuse(strings.HasPrefix(c.Directory, "~"), "directory: ~ is not expanded; write ${env:HOME}, is %q", c.Directory)
	switch c.Runs {
	case runsHost, runsWorkloads, runsBoth:
	default:
		refuse(true, "runs: unknown value %q; use host, workloads or both", c.Runs)
	}
	switch c.Fsync {
	case runs.SyncNever, runs.SyncInterval, runs.SyncRecord:
	default:
		refuse(true, "fsync: unknown value %q; use never, interval or record", c.Fsync)
	}
	_, err := c.names()
	errs = append(errs, err)
	refuse(c.Interval < minInterval, "interval: must be at least %s, is %s", minInterval, c.Interval)
	refuse(c.IdleTimeout < 0, "idle_timeout: must not be negative, is %s", c.IdleTimeout)
	refuse(c.IdleTimeout > 0 && c.IdleTimeout < 2*c.Interval,
		"idle_timeout: must be at least twice the interval (%s), or 0 for never, is %s", c.Interval, c.IdleTimeout)
	megabytes := func(key string, n float64) {
		refuse(!(n >= 0 && n <= maxMegabytes), "%s: must be from 0 (no limit) to %d, is %v", key, int64(maxMegabytes), n)
	}
	megabytes("rotation::max_megabytes", c.Rotation.MaxMegabytes)
	megabytes("max_disk_megabytes", c.MaxDiskMegabytes)
	refuse(c.Rotation.MaxAge < 0, "rotation::max_age: must not be negative, is %s", c.Rotation.MaxAge)
	refuse(c.Rotation.MaxAge > 0 && c.Rotation.MaxAge < 2*c.Interval,
		"rotation::max_age: must be at least twice the interval (%s), or 0 for none, is %s", c.Interval, c.Rotation.MaxAge)
	refuse(c.Timeout.Timeout <= 0, "timeout: must be positive, since a file system may never answer, is %s", c.Timeout.Timeout)
	refuse(c.MaxRuns < 1, "max_runs: must be at least 1, is %d", c.MaxRuns)
	refuse(c.Queue.HasValue() && c.Queue.Get().NumConsumers > 1,
		"sending_queue::num_consumers: must be 1, since records are written in the order of their times")
	refuse(c.Retry.Enabled && c.Retry.MaxElapsedTime <= 0 && c.holdsUp(),
		"retry_on_failure::max_elapsed_time: must be positive where the sending_queue is off, waits for results or blocks: "+
			"while nothing can be written, other exporters would get no data either, and the collector would not end")
	return errors.Join(errs...)
}

// holdsUp tells whether receivers wait for what is written.
func (c *Config) holdsUp() bool {
	if !c.Queue.HasValue() {
		return true
	}
	queue := c.Queue.Get()
	return queue.WaitForResult || queue.BlockOnOverflow
}
