// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

// readRuns reads the transaction logs of a W&B directory, by folder. Anything irregular
// fails the test; a log that ends within a record does not.
func readRuns(t *testing.T, directory string) []*wandbfiletest.File {
	t.Helper()
	files, err := wandbfiletest.ReadRuns(directory)
	require.NoError(t, err)
	return files
}

// readGrowingRuns reads a directory in which runs are being begun. One that has no
// run record yet is left out.
func readGrowingRuns(t *testing.T, directory string) []*wandbfiletest.File {
	t.Helper()
	paths, err := wandbfiletest.Runs(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var files []*wandbfiletest.File
	for _, path := range paths {
		f, err := wandbfiletest.ReadFile(path)
		require.NoError(t, err)
		if len(f.Records) >= 2 {
			files = append(files, f)
		}
	}
	return files
}

func TestNoRunsInAnEmptyDirectory(t *testing.T) {
	assert.Empty(t, readRuns(t, t.TempDir()))
}

// byInstance sorts runs by the resource that they are of, and by their start.
func byInstance(t *testing.T, files []*wandbfiletest.File) map[string][]*wandbfiletest.File {
	t.Helper()
	all := map[string][]*wandbfiletest.File{}
	for _, f := range files {
		instance, ok := runConfig(t, f)["service.instance.id"].(string)
		require.True(t, ok, "%v", f.Records[1].Run.Config)
		all[instance] = append(all[instance], f)
	}
	for _, runs := range all {
		slices.SortStableFunc(runs, func(a, b *wandbfiletest.File) int {
			return a.Records[1].Run.StartTime.Compare(b.Records[1].Run.StartTime)
		})
	}
	return all
}

// runConfig is the configuration of a run.
func runConfig(t *testing.T, f *wandbfiletest.File) map[string]any {
	t.Helper()
	config := map[string]any{}
	for _, item := range f.Records[1].Run.Config {
		var value any
		require.NoError(t, json.Unmarshal([]byte(item.Value), &value))
		config[item.Key] = value
	}
	return config
}

// instances sorts points by their resource.
func (ps points) instances() map[string]points {
	all := map[string]points{}
	for _, p := range ps {
		id := fmt.Sprint(p.resource["service.instance.id"])
		all[id] = append(all[id], p)
	}
	return all
}

// sdkTag is the tag that W&B's SDK writes for a point in template naming.
func sdkTag(p point) string {
	index, ok := p.attrs["gpu_index"]
	if !ok {
		return fullTag(p)
	}
	for _, prefix := range []string{"gpu.process.", "gpu."} {
		rest, ok := strings.CutPrefix(p.name, prefix)
		if !ok {
			continue
		}
		if p.name == "gpu.unCorrectedMemoryErrors" {
			rest = "uncorrectedMemoryErrors"
		}
		for _, key := range []string{"reason", "cause", "xid"} {
			if value, ok := p.attrs[key]; ok {
				return fmt.Sprint(prefix, index, ".", rest, ".", value)
			}
		}
		return fmt.Sprint(prefix, index, ".", rest)
	}
	return p.name
}

// labeled adds what W&B's x_label does to a tag.
func labeled(tag func(point) string) func(point) string {
	return func(p point) string {
		if label, ok := p.resource["wandb.label"]; ok {
			return fmt.Sprint(tag(p), "/l:", label)
		}
		return tag(p)
	}
}

// written is a value in one of the runs of a resource.
type written struct {
	wandbfiletest.Sample

	run *wandbfiletest.Run
}

// samplesOf takes the series of the runs of one resource.
func samplesOf(runs []*wandbfiletest.File) map[string][]written {
	all := map[string][]written{}
	for _, f := range runs {
		for key, series := range wandbfiletest.Series(f) {
			for _, s := range series {
				all[key] = append(all[key], written{s, f.Records[1].Run})
			}
		}
	}
	return all
}

// checkSeries: the runs of one resource have the values of its points, all of them and
// no others, in their order. The time of a value is that of its point, or at most an
// interval later.
func checkSeries(t *testing.T, ps points, tag func(point) string, runs []*wandbfiletest.File, interval time.Duration) {
	t.Helper()
	want, got := map[string]points{}, samplesOf(runs)
	for _, p := range ps {
		want[tag(p)] = append(want[tag(p)], p)
	}
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	for key, series := range want {
		require.Len(t, got[key], len(series), key)
		for i, value := range inRuns(key, series, got[key]) {
			s, p := got[key][i], series[i]
			require.InDelta(t, value, s.Value, 0, "%s, value %d of %d", key, i, len(series))
			require.False(t, s.Time.Before(p.at), "%s, value %d: %s is before %s", key, i, s.Time, p.at)
			require.LessOrEqual(t, s.Time.Sub(p.at), interval, "%s, value %d", key, i)
		}
	}
}

// inRuns are the values that points have in runs. What disks and networks have
// counted is counted from the start of the run.
func inRuns(key string, series points, got []written) []float64 {
	counts := strings.HasPrefix(key, "disk.") || strings.HasPrefix(key, "network.")
	var values []float64
	base := 0.0
	for i, p := range series {
		switch {
		case !counts || !p.shape.monotonic:
		case i == 0 && p.start.Before(got[i].run.StartTime):
			base = p.value
		case i > 0 && got[i].run != got[i-1].run:
			base = series[i-1].value
		}
		values = append(values, p.value-base)
	}
	return values
}

// checkEnd: a run is complete, and says how long it took.
func checkEnd(t *testing.T, f *wandbfiletest.File) {
	t.Helper()
	require.False(t, f.Truncated)
	n := len(f.Records)
	exit, last := f.Records[n-1].Exit, f.Records[n-2].Stats
	require.NotNil(t, exit)
	require.NotNil(t, last)
	assert.Zero(t, exit.Code)
	assert.Equal(t, int32(last.Timestamp.Sub(f.Records[1].Run.StartTime)/time.Second), exit.Runtime)
}

// checkRun compares what a run says of itself with the resource that it is of.
func checkRun(t *testing.T, f *wandbfiletest.File, ps points) {
	t.Helper()
	resource, run := ps[0].resource, f.Records[1].Run
	text := func(keys ...string) string {
		for _, key := range keys {
			if value, ok := resource[key]; ok {
				return fmt.Sprint(value)
			}
		}
		return ""
	}
	assert.Regexp(t, `^otelcol-wandbsys \d+\.\d+\.\d+$`, f.Records[0].Header.Producer)
	assert.Equal(t, "wandbsys", run.Project)
	assert.Empty(t, run.Entity)
	assert.Equal(t, []string{"wandbsys"}, run.Tags)
	assert.Equal(t, resource["host.name"], run.Host)
	assert.Equal(t, resource["service.instance.id"], run.DisplayName)
	assert.Equal(t, text("slurm.job.id", "wandb.run_id", "host.name"), run.Group)
	assert.Equal(t, cmp.Or(text("wandbsys.workload.kind"), "host"), run.JobType)
	assert.NotEqual(t, resource["wandb.run_id"], run.ID, "a user's own run stays his")
	first := ps[0].at
	for _, p := range ps {
		if !p.start.IsZero() && p.start.Before(first) {
			first = p.start
		}
	}
	assert.False(t, run.StartTime.Before(first), "starts at %s, before %s", run.StartTime, first)
	for _, r := range f.Records {
		if r.Stats != nil {
			assert.False(t, r.Stats.Timestamp.Before(run.StartTime))
			break
		}
	}
	config := runConfig(t, f)
	for key, value := range resource {
		if n, ok := value.(int64); ok {
			value = float64(n) // as JSON has it
		}
		assert.Equal(t, value, config[key], key)
	}
	environment := f.Records[2].Environment
	require.NotNil(t, environment)
	assert.Equal(t, "linux", environment.OS)
	assert.Equal(t, run.Host, environment.Host)
	assert.Equal(t, run.StartTime, environment.StartedAt)
}

const (
	fastScrapes = 200 * time.Millisecond
	// apartInRecord is the exporter's interval: generous, so that the parts of a scrape
	// are together also on a busy machine.
	apartInRecord = time.Second
)

// wandbFile is the section of the exporter.
func wandbFile(directory, more string) string {
	return fmt.Sprintf("wandb_file: {directory: '%s', interval: %s, "+
		"retry_on_failure: {initial_interval: 100ms, max_interval: 200ms}, %s}\n", directory, apartInRecord, more)
}

// countInFile counts a text in a file that may not be there yet.
func countInFile(path, text string) int {
	content, _ := os.ReadFile(path)
	return bytes.Count(content, []byte(text))
}

// The same pipeline writes OTLP: what W&B's tools show is what every other backend gets.
func TestWandbFileEqualsOTLP(t *testing.T) {
	gpus := fullGPUs(2)
	d, idle := startDriver(t, gpus...), startHelper(t, "idle")
	tr := startTraining(t, training{work: "idle", runs: []string{"run-20260102_030405-abc123/run-abc123.wandb"}, env: []string{"RANK=3", "WORLD_SIZE=8"}})
	d.hold(0, map[int]int{idle.pid(): gibi})
	d.hold(1, map[int]int{tr.pid(): 3 * gibi})

	var receivers strings.Builder
	for host, more := range map[string]string{"sdk": "naming: sdk, label: rank-3", "template": "naming: template", "labeled": "naming: tag, label: rank-3"} {
		fmt.Fprintf(&receivers, "wandbsys/%s: {host_name: %s, %s, extended: true, collection_interval: %s, initial_delay: 500ms, "+
			"workloads: {pid: %d}, scrapers: {host: , %s}}\n", host, host, more, fastScrapes, idle.pid(), d.section(""))
	}
	file, directory := jsonFile(t), filepath.Join(t.TempDir(), "new", "wandb")
	p := d.start(settings{
		receivers: receivers.String(),
		exporters: "file: {path: " + file + "}\n" + wandbFile(directory, "runs: both"),
	})
	for _, scrapes := range []int{20, 40, 60} {
		p.waitFor("many scrapes", func() bool { return countInFile(file, `"memory_percent`) >= 3*scrapes })
	}
	p.stop()
	assert.Zero(t, p.exitCode())
	assert.Empty(t, fileErrors(p))

	all, files := readJSONLines(t, file), readRuns(t, directory)
	runs, instances := byInstance(t, files), all.instances()
	require.Equal(t, slices.Sorted(maps.Keys(instances)), slices.Sorted(maps.Keys(runs)))
	ids := map[string]bool{}
	for instance, ps := range instances {
		host, _, _ := strings.Cut(instance, "/")
		t.Run(instance, func(t *testing.T) {
			require.Len(t, runs[instance], 1)
			f := runs[instance][0]
			tag := map[string]func(point) string{
				"sdk": func(p point) string { return p.name }, "template": sdkTag, "labeled": labeled(sdkTagOfList),
			}[host]
			checkSeries(t, ps, tag, runs[instance], apartInRecord)
			checkRun(t, f, ps)
			checkEnd(t, f)
			ids[f.Records[1].Run.ID] = true
		})
	}
	assert.Len(t, ids, len(instances), "each run has an id of its own")
	for _, host := range []string{"sdk", "template", "labeled"} {
		t.Run("the machine "+host, func(t *testing.T) {
			for _, name := range []string{fmt.Sprintf("pid-%d", idle.pid()), fmt.Sprintf("run-abc123-%d", tr.pid())} {
				assert.Contains(t, runs, host+"/"+name)
			}
			checkEnvironment(t, runs[host][0], gpus)
		})
	}
	t.Run("the latest run", func(t *testing.T) {
		path, err := filepath.EvalSymlinks(filepath.Join(directory, "latest-run"))
		require.NoError(t, err)
		assert.Regexp(t, `^offline-run-\d{8}_\d{6}-[a-z0-9]+$`, filepath.Base(path))
	})
}

// sdkTagOfList is the tag that W&B's SDK writes for a point whose name is a published tag.
func sdkTagOfList(p point) string {
	if strings.HasPrefix(p.name, "gpu.") && !strings.HasPrefix(p.name, "gpu.process.") {
		return strings.Replace(p.name, "unCorrectedMemoryErrors", "uncorrectedMemoryErrors", 1)
	}
	return p.name
}

// checkEnvironment compares the environment with the machine and the driver's GPUs. These
// are known where the first scrape of them was in time for the first record.
func checkEnvironment(t *testing.T, f *wandbfiletest.File, gpus []gpu) {
	t.Helper()
	e := f.Records[2].Environment
	assert.NotZero(t, e.CPUCount)
	assert.LessOrEqual(t, int(e.CPUCount), int(e.CPUCountLogical))
	assert.LessOrEqual(t, runtime.NumCPU(), int(e.CPUCountLogical))
	var tr truth
	tr.readMemory(t)
	require.NotNil(t, e.Memory)
	assert.InDelta(t, tr.memTotal, e.Memory.Total, 0)
	if !slices.ContainsFunc(f.Records[3].Stats.Items, func(i wandbfiletest.Item) bool { return strings.HasPrefix(i.Key, "gpu.") }) {
		t.Skip("the machine is so busy that the first record has no GPUs")
	}
	var want []wandbfiletest.NvidiaGPU
	for _, g := range gpus {
		want = append(want, wandbfiletest.NvidiaGPU{Name: fmt.Sprint(g["name.value"]), UUID: fmt.Sprint(g["uuid.value"])})
	}
	assert.Equal(t, want, e.GPUNvidia)
	assert.Equal(t, gpus[0]["name.value"], e.GPUType)
	assert.Equal(t, len(gpus), int(e.GPUCount))
	assert.Equal(t, "13.1", e.CUDAVersion)
}
