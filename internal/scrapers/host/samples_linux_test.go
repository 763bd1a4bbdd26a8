// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// samplesVariable names the folder of recorded cases: one folder per family,
// in it NAME.expected.json and the input beside it.
const samplesVariable = "WANDBSYS_SAMPLES"

// sample is NAME.expected.json of this family.
type sample struct {
	Tags      map[string]float64 `json:"tags"`
	HostTags  map[string]float64 `json:"host_tags"`
	ExtraTags map[string]float64 `json:"extra_tags"`
	// Identity is what control groups tell: of the process, or by the stem of
	// NAME/*.cgroup.
	Identity map[string]any `json:"identity"`
	// Discovery is what is found below NAME/proc.
	Discovery map[string]any `json:"discovery"`
	Config    sampleConfig   `json:"config"`
}

type sampleConfig struct {
	Root             string                  `json:"root"`
	Pid              int                     `json:"pid"`
	IntervalS        float64                 `json:"interval_s"`
	PageSize         uint64                  `json:"page_size"`
	DiskPaths        []string                `json:"disk_paths"`
	TrackProcessTree bool                    `json:"track_process_tree"`
	T0BootTicks      uint64                  `json:"t0_boot_ticks"`
	Statfs           map[string]sampleStatfs `json:"statfs"`
}

type sampleStatfs struct {
	Bsize  int64  `json:"f_bsize"`
	Frsize int64  `json:"f_frsize"`
	Blocks uint64 `json:"f_blocks"`
	Bfree  uint64 `json:"f_bfree"`
	Bavail uint64 `json:"f_bavail"`
}

func TestSamples(t *testing.T) {
	root := os.Getenv(samplesVariable)
	if root == "" {
		t.Skip(samplesVariable + " is not set")
	}
	files, err := filepath.Glob(filepath.Join(root, "host", "*.expected.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".expected.json")
		t.Run(name, func(t *testing.T) {
			s := loadSample(t, file)
			runSample(t, filepath.Join(root, "host", name), s)
		})
	}
}

func loadSample(t *testing.T, file string) sample {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	var s sample
	require.NoError(t, json.Unmarshal(content, &s))
	return s
}

func runSample(t *testing.T, dir string, s sample) {
	t.Helper()
	if groups, _ := filepath.Glob(filepath.Join(dir, "*.cgroup")); len(groups) > 0 {
		compareIdentities(t, s.Identity, groups)
		return
	}
	if s.Discovery != nil {
		compareDiscovery(t, s.Discovery, filepath.Join(dir, s.Config.Root))
		return
	}
	md := scrapeSample(t, dir, s, false)
	if s.Identity != nil {
		assert.Equal(t, s.Identity, identityOf(md))
	}
	compareTags(t, "host_tags", s.HostTags, listedTags(s.HostTags, tagsOf(hostOf(md))))
	compareTags(t, "tags", s.Tags, tagsOf(md))
	if s.ExtraTags == nil {
		return
	}
	got := tagsOf(scrapeSample(t, dir, s, true))
	for tag := range got {
		_, listed := s.ExtraTags[tag]
		if _, isDefault := s.Tags[tag]; isDefault || !listed {
			delete(got, tag)
		}
	}
	compareTags(t, "extra_tags", s.ExtraTags, got)
}

// listedTags keeps of got what a case lists: its host_tags are those that the
// workload's own points would hide.
func listedTags(list, got map[string]float64) map[string]float64 {
	listed := map[string]float64{}
	for tag := range list {
		if value, ok := got[tag]; ok {
			listed[tag] = value
		}
	}
	return listed
}

func scrapeSample(t *testing.T, dir string, s sample, extended bool) pmetric.Metrics {
	t.Helper()
	// One link stands for the machine's root: t0 first, then t1.
	root := filepath.Join(t.TempDir(), "root")
	begin := time.Now()
	now := begin
	env := environment{
		now:      func() time.Time { return now },
		statfs:   s.statfs(filepath.Join(root, s.Config.Root)),
		pageSize: s.Config.PageSize,
	}
	bootTicks := func() (uint64, error) {
		return s.Config.T0BootTicks + uint64(now.Sub(begin).Seconds()*procread.TicksPerSecond), nil
	}
	cfg := defaultConfig().(*Config)
	cfg.DiskPaths = s.Config.DiskPaths
	workloads := workload.NewDiscovery(workload.Options{
		RootPath: filepath.Join(root, s.Config.Root),
		Target:   scrapers.Target{Pid: s.Config.Pid, Tree: s.Config.TrackProcessTree},
	}).WithClock(env.now, bootTicks)
	src, err := newLinuxSource(cfg, filepath.Join(root, s.Config.Root), workloads, env)
	require.NoError(t, err)
	scraper := newScraperFor(sampleSettings(t, root, extended), cfg, src)

	var md pmetric.Metrics
	for _, moment := range []string{"t0", "t1"} { // one of them at least
		from := filepath.Join(dir, moment)
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		_ = os.Remove(root)
		require.NoError(t, os.Symlink(from, root))
		if moment == "t1" {
			now = now.Add(time.Duration(s.Config.IntervalS * float64(time.Second)))
		}
		var scrapeErr error
		md, scrapeErr = scraper.Scrape(t.Context())
		if scrapeErr != nil {
			t.Logf("%s: %v", moment, scrapeErr)
		}
	}
	return md
}

// statfs answers from the case, which names file systems by the configured
// path; the source asks for where that leads. Others do not exist.
func (s sample) statfs(root string) func(string, *unix.Statfs_t) error {
	return func(path string, st *unix.Statfs_t) error {
		given, ok := s.filesystemAt(root, filepath.Join("/", strings.TrimPrefix(path, root)))
		if !ok {
			return unix.ENOENT
		}
		*st = unix.Statfs_t{Bsize: given.Bsize, Frsize: given.Frsize, Blocks: given.Blocks, Bfree: given.Bfree, Bavail: given.Bavail}
		return nil
	}
}

func (s sample) filesystemAt(root, path string) (sampleStatfs, bool) {
	if given, ok := s.Config.Statfs[path]; ok {
		return given, true
	}
	for configured, given := range s.Config.Statfs {
		if filepath.Clean(resolve(root, configured)) == path {
			return given, true
		}
	}
	return sampleStatfs{}, false
}

// A case names its file systems as they are configured: a link, a path that
// ends in a slash.
func TestSampleNamesFileSystemsAsConfigured(t *testing.T) {
	m := newTestMachine(t, map[string]string{
		"t1/hostfs/proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 250 kB\n",
		"t1/hostfs/mnt/x/":       "",
		"t1/hostfs/home/":        "",
		"t1/hostfs/data":         "-> /mnt/x",
	})
	disk := sampleStatfs{Bsize: 1 << 20, Frsize: 4096, Blocks: 1 << 20, Bfree: 1 << 19, Bavail: 1 << 19}
	memory := map[string]float64{"memory_percent": 75, "proc.memory.availableMB": 250.0 / 1024}
	tags := maps.Clone(memory)
	for _, path := range []string{"/data", "/home/", "/"} {
		tags["disk."+path+".usageGB"], tags["disk."+path+".usagePercent"] = 2, 50
	}
	for _, hostTags := range []map[string]float64{nil, tags} {
		runSample(t, m.root, sample{
			Tags: tags, HostTags: hostTags,
			Config: sampleConfig{
				Root: "/hostfs", PageSize: 4096,
				DiskPaths: []string{"/data", "/home/", "/", "/gone"},
				Statfs:    map[string]sampleStatfs{"/data": disk, "/home/": disk, "/": disk},
			},
		})
	}
}

// An expected 0 is not there when nothing is.
func TestCompareTagsTellsZeroFromMissing(t *testing.T) {
	list := map[string]float64{"a": 0, "b": 0}
	assert.Equal(t, map[string]float64{"b": 3}, listedTags(list, map[string]float64{"b": 3, "c": 4}))
	assert.Equal(t, []string{"x: a is missing, want 0"}, tagDifferences("x", map[string]float64{"a": 0}, nil))
	assert.Equal(t, []string{"x: a is surplus (0)"}, tagDifferences("x", nil, map[string]float64{"a": 0}))
	assert.Equal(t, []string{"x: a is 1, want 2"}, tagDifferences("x", map[string]float64{"a": 2}, map[string]float64{"a": 1}))
	assert.Empty(t, tagDifferences("x", map[string]float64{"a": 1}, map[string]float64{"a": 1 + 1e-7}))
}
