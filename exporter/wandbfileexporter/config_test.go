// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfileexporter

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/runs"
)

// load reads a configuration of testdata/config.yaml.
func load(t *testing.T, name string) (*Config, error) {
	t.Helper()
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	sub, err := all.Sub(name)
	require.NoError(t, err)
	cfg := defaultConfig()
	return cfg, sub.Unmarshal(cfg)
}

func defaultConfig() *Config { return createDefaultConfig().(*Config) }

func TestConfigIsRead(t *testing.T) {
	queueOf := func(change func(*exporterhelper.QueueBatchConfig)) configoptional.Optional[exporterhelper.QueueBatchConfig] {
		queue := exporterhelper.NewDefaultQueueConfig()
		queue.NumConsumers = 1
		change(&queue)
		return configoptional.Some(queue)
	}
	for name, want := range map[string]func(*Config){
		"wandb_file": func(c *Config) {
			*c = Config{
				Directory: "/var/lib/wandbsys/wandb", Runs: "host", Interval: 15 * time.Second,
				Project:     "wandbsys",
				Group:       "{slurm.job.id|wandb.run_id|host.name}",
				JobType:     "{wandbsys.workload.kind|'host'}",
				DisplayName: "{service.instance.id|k8s.pod.name|container.name|host.name|service.name}",
				Tags:        []string{"wandbsys"},
				Rotation:    Rotation{MaxMegabytes: 100, MaxAge: 24 * time.Hour}, MaxDiskMegabytes: 2048,
				MaxRuns: 512, IdleTimeout: 5 * time.Minute, Fsync: runs.SyncNever,
				Timeout: exporterhelper.TimeoutConfig{Timeout: 5 * time.Second},
				Retry:   c.Retry,
				Queue:   queueOf(func(*exporterhelper.QueueBatchConfig) {}),
			}
			c.Retry.MaxElapsedTime = 0
		},
		"wandb_file/all": func(c *Config) {
			*c = Config{
				Directory: "data", Runs: "both", Interval: 10 * time.Second, IncludeUnknown: true,
				Entity: "team", Project: "{service.name|'none'}", Group: "{slurm.job.id}", JobType: "any",
				DisplayName: "{{{host.name}}}", Notes: "on {host.name}",
				Tags:     []string{"a", "{os.type}"},
				Rotation: Rotation{MaxMegabytes: 1, MaxAge: time.Hour}, MaxDiskMegabytes: 10,
				MaxRuns: 3, IdleTimeout: time.Minute, Fsync: runs.SyncInterval,
				Timeout: exporterhelper.TimeoutConfig{Timeout: 2 * time.Second},
				Retry:   c.Retry,
				Queue:   queueOf(func(q *exporterhelper.QueueBatchConfig) { q.QueueSize = 7 }),
			}
			c.Retry.InitialInterval, c.Retry.MaxElapsedTime = time.Second, time.Minute
		},
		"wandb_file/off": func(c *Config) {
			c.Directory, c.Tags = "data", []string{}
			c.Rotation, c.MaxDiskMegabytes, c.IdleTimeout = Rotation{}, 0, 0
			c.Retry.Enabled = false
			c.Queue = configoptional.None[exporterhelper.QueueBatchConfig]()
		},
	} {
		t.Run(name, func(t *testing.T) {
			expected := defaultConfig()
			want(expected)
			got, err := load(t, name)
			require.NoError(t, err)
			assert.Equal(t, expected, got)
			assert.NoError(t, confmap.Validate(got))
		})
	}
}

func TestUnknownKeysAreRefused(t *testing.T) {
	_, err := load(t, "wandb_file/unknown_key")
	assert.ErrorContains(t, err, "has invalid keys: projet")
}

func TestWrongTemplatesMakeNoExporter(t *testing.T) {
	cfg, err := load(t, "wandb_file/templates")
	require.NoError(t, err)
	_, err = NewFactory().CreateMetrics(t.Context(), exportertest.NewNopSettings(metadata.Type), cfg)
	assert.EqualError(t, err, "group: \"{host.name\" has a single { (write {{ for a brace)\n"+
		"tags::1: \"{}\": {}: the name of an attribute is missing")
}

func TestConfigThatIsWrong(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"directory: must be set, e.g. /var/lib/wandbsys/wandb": func(c *Config) { c.Directory = "" },
		`directory: ~ is not expanded; write ${env:HOME}, is "~/wandb"`: func(c *Config) {
			c.Directory = "~/wandb"
		},
		`runs: unknown value "all"; use host, workloads or both`: func(c *Config) { c.Runs = "all" },
		`fsync: unknown value ""; use never, interval or record`: func(c *Config) { c.Fsync = "" },
		"interval: must be at least 100ms, is 99ms":              func(c *Config) { c.Interval = 99 * time.Millisecond },
		"idle_timeout: must not be negative, is -1s":             func(c *Config) { c.IdleTimeout = -time.Second },
		"idle_timeout: must be at least twice the interval (15s), or 0 for never, is 29s": func(c *Config) {
			c.IdleTimeout = 29 * time.Second
		},
		"rotation::max_megabytes: must be from 0 (no limit) to 4398046511104, is -1": func(c *Config) { c.Rotation.MaxMegabytes = -1 },
		"rotation::max_age: must not be negative, is -1s":                            func(c *Config) { c.Rotation.MaxAge = -time.Second },
		"rotation::max_age: must be at least twice the interval (15s), or 0 for none, is 29s": func(c *Config) {
			c.Rotation.MaxAge = 29 * time.Second
		},
		"max_disk_megabytes: must be from 0 (no limit) to 4398046511104, is NaN": func(c *Config) { c.MaxDiskMegabytes = math.NaN() },
		"timeout: must be positive, since a file system may never answer, is 0s": func(c *Config) {
			c.Timeout.Timeout = 0
		},
		"max_disk_megabytes: must be from 0 (no limit) to 4398046511104, is 1.7592186044416e+13": func(c *Config) {
			c.MaxDiskMegabytes = 1 << 44
		},
		"max_runs: must be at least 1, is 0": func(c *Config) { c.MaxRuns = 0 },
		"sending_queue::num_consumers: must be 1, since records are written in the order of their times": func(c *Config) {
			c.Queue.Get().NumConsumers = 2
		},
	} {
		t.Run(want, func(t *testing.T) {
			cfg := defaultConfig()
			cfg.Directory = "data"
			require.NoError(t, cfg.Validate())
			change(cfg)
			assert.EqualError(t, cfg.Validate(), want)
		})
	}
}

func TestReceiversMustNotWaitForEver(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no queue":            func(c *Config) { c.Queue = configoptional.None[exporterhelper.QueueBatchConfig]() },
		"a queue that waits":  func(c *Config) { c.Queue.Get().WaitForResult = true },
		"a queue that blocks": func(c *Config) { c.Queue.Get().BlockOnOverflow = true },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := defaultConfig()
			cfg.Directory = "data"
			change(cfg)
			require.ErrorContains(t, cfg.Validate(), "retry_on_failure::max_elapsed_time: must be positive where")
			cfg.Retry.MaxElapsedTime = time.Minute
			require.NoError(t, cfg.Validate())
			cfg.Retry.MaxElapsedTime, cfg.Retry.Enabled = 0, false
			require.NoError(t, cfg.Validate())
		})
	}
}

func TestOneLogHasAtMostHalfOfTheDisk(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		rotation, disk float64
		one, all       int64
	}{
		"the defaults":         {100, 2048, 100 * mib, 2048 * mib},
		"a small disk":         {100, 50, 25 * mib, 50 * mib},
		"logs of any size":     {0, 10, 5 * mib, 10 * mib},
		"a disk without limit": {100, 0, 100 * mib, 0},
		"no limits":            {0, 0, 0, 0},
		"fractions":            {0.5, 1.5, mib / 2, mib * 3 / 2},
		"the most":             {maxMegabytes, maxMegabytes, maxMegabytes / 2 * mib, maxMegabytes * mib},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := defaultConfig()
			cfg.Directory, cfg.Rotation.MaxMegabytes, cfg.MaxDiskMegabytes = "data", c.rotation, c.disk
			require.NoError(t, cfg.Validate())
			one, all := cfg.sizes()
			assert.Equal(t, []int64{c.one, c.all}, []int64{one, all})
		})
	}
}

func TestAllThatIsWrongIsSaid(t *testing.T) {
	cfg := defaultConfig()
	cfg.Runs, cfg.MaxRuns = "x", -1
	assert.EqualError(t, cfg.Validate(), "directory: must be set, e.g. /var/lib/wandbsys/wandb\n"+
		"runs: unknown value \"x\"; use host, workloads or both\nmax_runs: must be at least 1, is -1")
}

func TestConfigsOfTheHelperAreValidated(t *testing.T) {
	cfg := defaultConfig()
	cfg.Directory = "data"
	cfg.Queue.Get().QueueSize = -1
	require.ErrorContains(t, confmap.Validate(cfg), "sending_queue")
	cfg = defaultConfig()
	cfg.Directory = "data"
	cfg.Retry.InitialInterval = -1
	assert.ErrorContains(t, confmap.Validate(cfg), "retry_on_failure")
}

func TestConfigStruct(t *testing.T) {
	assert.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
}
