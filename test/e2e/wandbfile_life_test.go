// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

// fastHost is a receiver that measures nothing but the machine, often.
const fastHost = "wandbsys: {collection_interval: 200ms, initial_delay: 0s, host_name: node, workloads: {discover: []}, scrapers: {host: }}"

// hostScrapes counts the scrapes that have arrived.
func (s *sink) hostScrapes() int { return len(s.points().named("memory_percent")) }

// moreScrapes waits for n further ones.
func (p *process) moreScrapes(s *sink, n int) {
	p.t.Helper()
	seen := s.hostScrapes()
	p.waitFor("more scrapes", func() bool { return s.hostScrapes() >= seen+n })
}

// runScrapes counts the scrapes that are in the runs so far.
func runScrapes(t *testing.T, directory string) int {
	t.Helper()
	return len(wandbfiletest.Series(readGrowingRuns(t, directory)...)["memory_percent"])
}

// caughtUp waits until the runs have all but the newest scrape of what was there.
func (p *process) caughtUp(s *sink, directory string) {
	p.t.Helper()
	seen := s.hostScrapes()
	p.waitFor("the runs have it", func() bool { return runScrapes(p.t, directory) >= seen-1 })
}

// fileErrors are the errors that the exporter has logged.
func fileErrors(p *process) []logLine {
	return slices.DeleteFunc(p.logLines("error"), func(line logLine) bool { return line.Component != "wandb_file" })
}

func TestWandbFileAfterAKill(t *testing.T) {
	s, directory := startSink(t, nil), filepath.Join(t.TempDir(), "wandb")
	config := settings{receivers: fastHost, exporters: s.exporter() + wandbFile(directory, "")}
	p := startCollector(t, config)
	p.moreScrapes(s, 10)
	p.caughtUp(s, directory)
	before := readGrowingRuns(t, directory)
	p.kill()

	files, points := readRuns(t, directory), s.points()
	require.Len(t, files, 1)
	killed := files[0]
	assert.Nil(t, killed.Records[len(killed.Records)-1].Exit)
	require.GreaterOrEqual(t, len(killed.Records), len(before[0].Records))
	assert.Equal(t, before[0].Records, killed.Records[:len(before[0].Records)], "what was written stays")
	// What is in the run is the beginning of what was measured.
	last := killed.Records[len(killed.Records)-1].Stats.Timestamp
	checkSeries(t, points.filter(func(p point) bool { return !p.at.After(last) }), sdkTag, files, apartInRecord)

	paths, err := wandbfiletest.Runs(directory)
	require.NoError(t, err)
	content, err := os.ReadFile(paths[0])
	require.NoError(t, err)
	file := jsonFile(t)
	config.exporters += "file: {path: " + file + "}"
	again := startCollector(t, config)
	again.moreScrapes(s, 4)
	again.stop()
	after, err := os.ReadFile(paths[0])
	require.NoError(t, err)
	assert.Equal(t, content, after, "a run that was cut off is left as it is")
	files = slices.DeleteFunc(readRuns(t, directory), func(f *wandbfiletest.File) bool { return f.Records[1].Run.ID == killed.Records[1].Run.ID })
	require.Len(t, files, 1)
	checkSeries(t, readJSONLines(t, file), sdkTag, files, apartInRecord)
	checkEnd(t, files[0])
}

// Runs of a megabyte each follow one another without a gap.
// talkativeHost is a receiver that measures much, often: disks are cheap to read, and
// their tags are long.
func talkativeHost(t *testing.T) string {
	t.Helper()
	var disks []string
	for i := range 200 {
		disk := filepath.Join(t.TempDir(), strings.Repeat("long", 40)+strconv.Itoa(i))
		require.NoError(t, os.Mkdir(disk, 0o755))
		disks = append(disks, disk)
	}
	return "wandbsys: {collection_interval: 200ms, initial_delay: 0s, host_name: node, workloads: {discover: []}, " +
		"scrapers: {host: {max_series: 10000, disk_paths: ['" + strings.Join(disks, "', '") + "']}}}"
}

func TestWandbFileDiskLimit(t *testing.T) {
	directory := t.TempDir()
	theirs := filepath.Join(directory, "offline-run-20260101_000000-theirs", "run-theirs.wandb")
	require.NoError(t, os.Mkdir(filepath.Dir(theirs), 0o755))
	content := []byte(strings.Repeat("W&B's own", mebi/4))
	require.NoError(t, os.WriteFile(theirs, content, 0o600))

	p := startCollector(t, settings{receivers: talkativeHost(t), exporters: wandbFile(directory, "max_disk_megabytes: 1")})
	p.waitFor("the seventh run", func() bool {
		runs, _ := filepath.Glob(filepath.Join(directory, "*-7"))
		return len(runs) > 0
	})
	p.stop()
	assert.Zero(t, p.exitCode())
	assert.Empty(t, fileErrors(p))

	got, err := os.ReadFile(theirs)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(content, got), "what W&B wrote is as it was")
	require.NoError(t, os.RemoveAll(filepath.Dir(theirs)))
	var size int64
	runs := readRuns(t, directory)
	for _, f := range runs {
		assert.LessOrEqual(t, f.Good, int64(mebi/2), "one log has at most half of the room")
		size += f.Good
	}
	assert.Less(t, size, int64(2*mebi), "three were written; it is looked once a second")
	assert.Less(t, len(runs), 7, "the oldest ones are gone")
}

func TestWandbFileRotation(t *testing.T) {
	directory, file := t.TempDir(), jsonFile(t)
	p := startCollector(t, settings{
		receivers: talkativeHost(t),
		exporters: "file: {path: " + file + "}\n" + wandbFile(directory, "rotation: {max_megabytes: 1}"),
	})
	for n := range 3 {
		p.waitFor("another run", func() bool { return len(readGrowingRuns(t, directory)) > n })
	}
	p.stop() // in the midst of scrapes
	assert.Zero(t, p.exitCode())
	assert.Empty(t, fileErrors(p))

	runs := byInstance(t, readRuns(t, directory))["node"]
	require.GreaterOrEqual(t, len(runs), 3)
	checkSeries(t, readJSONLines(t, file), sdkTag, runs, apartInRecord)
	first := runs[0].Records[1].Run.ID
	assert.Regexp(t, `^[a-z0-9]+$`, first)
	for i, f := range runs {
		checkEnd(t, f)
		run := f.Records[1].Run
		assert.LessOrEqual(t, f.Good, int64(mebi))
		assert.Equal(t, "node", run.Group)
		assert.Equal(t, "node", run.DisplayName)
		if i == 0 {
			continue
		}
		assert.Equal(t, first+"-"+strconv.Itoa(i+1), run.ID)
		before := runs[i-1].Records
		assert.Greater(t, runs[i-1].Good, int64(mebi)*9/10, "it was full")
		assert.Equal(t, before[len(before)-2].Stats.Timestamp, run.StartTime, "no gap")
	}
}

// Another collector writes the runs: what is sent to it says as much.
func TestWandbFileBehindOTLP(t *testing.T) {
	gpus := fullGPUs(2)
	d, idle := startDriver(t, gpus...), startHelper(t, "idle")
	d.hold(1, map[int]int{idle.pid(): gibi})
	address, directories := freeAddress(t), map[string]string{"direct": t.TempDir(), "behind": t.TempDir()}
	behind := startCollector(t, settings{
		receivers: "otlp: {protocols: {grpc: {endpoint: '" + address + "'}}}",
		exporters: wandbFile(directories["behind"], "runs: both"),
	})
	behind.waitFor("the collector is ready", func() bool { return strings.Contains(behind.stderr.String(), "Everything is ready") })
	var receivers strings.Builder
	for host, more := range map[string]string{"template": "naming: template, label: rank-3", "tag": "naming: tag"} {
		fmt.Fprintf(&receivers, "wandbsys/%s: {host_name: %s, %s, extended: true, collection_interval: %s, initial_delay: 500ms, "+
			"workloads: {pid: %d, discover: []}, scrapers: {host: , %s}}\n", host, host, more, fastScrapes, idle.pid(), d.section(""))
	}
	p := d.start(settings{
		receivers: receivers.String(),
		exporters: "otlp_grpc: {endpoint: '" + address + "', tls: {insecure: true}, sending_queue: {num_consumers: 1}}\n" +
			wandbFile(directories["direct"], "runs: both"),
	})
	p.waitFor("many scrapes", func() bool { return runScrapes(t, directories["behind"]) >= 10 })
	p.stop()
	assert.Zero(t, p.exitCode())
	behind.stop()
	assert.Zero(t, behind.exitCode())

	direct, sent := byInstance(t, readRuns(t, directories["direct"])), byInstance(t, readRuns(t, directories["behind"]))
	require.Len(t, direct, 4)
	require.Equal(t, slices.Sorted(maps.Keys(direct)), slices.Sorted(maps.Keys(sent)))
	for instance, want := range direct {
		t.Run(instance, func(t *testing.T) {
			require.Len(t, want, 1)
			require.Len(t, sent[instance], 1)
			checkEnd(t, sent[instance][0])
			assert.Equal(t, texts(want[0]), texts(sent[instance][0]))
			same, got := *want[0].Records[1].Run, *sent[instance][0].Records[1].Run
			assert.NotEqual(t, same.ID, got.ID)
			same.ID, same.StartTime = got.ID, got.StartTime
			assert.Equal(t, same, got)
		})
	}
}

// texts are the values of a run as they are written, by their keys.
func texts(f *wandbfiletest.File) map[string][]string {
	all := map[string][]string{}
	for key, series := range wandbfiletest.Series(f) {
		for _, s := range series {
			all[key] = append(all[key], s.Text)
		}
	}
	return all
}

func TestAgentWritesRuns(t *testing.T) {
	s, directory := startSink(t, nil), filepath.Join(t.TempDir(), "runs of node 7")
	env := append(agentEnv("http://"+s.address), "WANDBSYS_WANDB_DIR="+directory, "WANDB_ENTITY=team", "WANDB_PROJECT=fleet")
	p := startProcess(t, collector(t, env, "--config", repo(t, "config", "wandb.yaml"),
		"--set=extensions.health_check.endpoint="+freeAddress(t), "--set=receivers.wandbsys.initial_delay=0s", "--set=processors.batch.timeout=0s"))
	p.waitFor("the machine's metrics", func() bool { return len(s.points().ofMachine().named("memory_percent")) > 0 })
	p.stop()
	assert.Empty(t, p.logLines("error"))

	files := readRuns(t, directory)
	require.Len(t, files, 1)
	checkEnd(t, files[0])
	run := files[0].Records[1].Run
	assert.Equal(t, "team", run.Entity)
	assert.Equal(t, "fleet", run.Project)
	assert.Equal(t, "node-7", run.DisplayName)
	measured := s.points().ofMachine().filter(func(p point) bool { return p.resource["service.name"] == "wandbsys" })
	checkSeries(t, measured, labeled(sdkTag), files, 15*time.Second)
}

func TestQuickstartWritesRuns(t *testing.T) {
	target, directory := startHelper(t, "idle"), filepath.Join(t.TempDir(), "wandb")
	env := []string{"WANDBSYS_WANDB_DIR=" + directory, fmt.Sprintf("WANDBSYS_PID=%d", target.pid())}
	p := startProcess(t, collector(t, env, "--config", repo(t, "config", "quickstart.yaml"), "--config", repo(t, "config", "quickstart-wandb.yaml"),
		"--set=exporters.prometheus.endpoint="+freeAddress(t)))
	checkQuickstartRuns(t, p, directory, target.pid())
}

// checkQuickstartRuns: the machine and the process have runs, also while they grow.
func checkQuickstartRuns(t *testing.T, p *process, directory string, pid int) {
	t.Helper()
	host := firstLine(t, "/etc/hostname")
	workload := fmt.Sprintf("%s/pid-%d", host, pid)
	p.waitFor("runs", func() bool {
		all := byInstance(t, readGrowingRuns(t, directory))
		return len(all[host]) > 0 && len(all[workload]) > 0
	})
	p.waitFor("lines", func() bool {
		return regexp.MustCompile(`(?m)^memory_percent{} [0-9.]+$`).MatchString(p.stdout.String())
	})
	p.interrupt()
	runs := byInstance(t, readRuns(t, directory))
	for instance, key := range map[string]string{host: "memory_percent", workload: "proc.memory.rssMB"} {
		require.Len(t, runs[instance], 1)
		checkEnd(t, runs[instance][0])
		assert.NotEmpty(t, wandbfiletest.Series(runs[instance]...)[key])
	}
}
