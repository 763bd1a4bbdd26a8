// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// samplesVariable names the folder of recorded cases: one folder per family,
// in it NAME.expected.json and the input beside it.
const samplesVariable = "WANDBSYS_SAMPLES"

// sample is NAME.expected.json of this family.
type sample struct {
	Tags      map[string]float64 `json:"tags"`
	HostTags  map[string]float64 `json:"host_tags"`
	ExtraTags map[string]float64 `json:"extra_tags"`
	Identity  map[string]any     `json:"identity"`
	Discovery map[string]any     `json:"discovery"`
	Config    sampleConfig       `json:"config"`
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
	skipUnavailable(t, s)
	md := scrapeSample(t, dir, s, false)
	hostTags := tagsOf(hostOf(md))
	for tag, want := range s.HostTags {
		compareTags(t, "host_tags", map[string]float64{tag: want}, map[string]float64{tag: hostTags[tag]})
	}
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

// skipUnavailable skips what holds only identities or discovery, which are
// not there yet.
func skipUnavailable(t *testing.T, s sample) {
	t.Helper()
	if s.Discovery != nil || (s.Identity != nil && len(s.Tags) == 0) {
		t.Skip("discovery of workloads and identity from cgroup paths are not there yet")
	}
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
		bootTicks: func() (uint64, error) {
			return s.Config.T0BootTicks + uint64(now.Sub(begin).Seconds()*procread.TicksPerSecond), nil
		},
	}
	cfg := defaultConfig().(*Config)
	cfg.DiskPaths = s.Config.DiskPaths
	src, err := newLinuxSource(cfg, filepath.Join(root, s.Config.Root), scrapers.Target{Pid: s.Config.Pid, Tree: s.Config.TrackProcessTree}, env)
	require.NoError(t, err)
	scraper := newScraperFor(sampleSettings(t, root, extended), cfg, src)

	var md pmetric.Metrics
	for _, moment := range []string{"t0", "t1"} {
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

func (s sample) statfs(root string) func(string, *unix.Statfs_t) error {
	return func(path string, st *unix.Statfs_t) error {
		given, ok := s.Config.Statfs[filepath.Join("/", strings.TrimPrefix(path, root))]
		if !ok {
			return unix.ENOENT
		}
		*st = unix.Statfs_t{Bsize: given.Bsize, Frsize: given.Frsize, Blocks: given.Blocks, Bfree: given.Bfree, Bavail: given.Bavail}
		return nil
	}
}
