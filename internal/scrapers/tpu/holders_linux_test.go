// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// holdersRig is the family on a machine with processes.
type holdersRig struct {
	*rig
	m machine
}

// newHoldersRig has four chips in the groups 20 to 23, and processes 100, 200 and 300.
func newHoldersRig(t *testing.T) *holdersRig {
	t.Helper()
	m := newMachine(t)
	m.addChips(v6e, "", 4)
	m.Process(2, 0, "kthreadd")
	for _, pid := range []int{100, 200, 300} {
		m.Process(pid, 1, "train")
		m.Link("proc/"+strconv.Itoa(pid)+"/fd/0", "/dev/null")
	}
	r := &holdersRig{m: m}
	r.rig = newRig(t, m, endpoints(nobody(t)), func(set *scrapers.Settings) {
		opts := workload.Options{RootPath: m.Root}
		opts.Discover.GPU = true
		set.Workloads = workload.NewDiscovery(opts).WithClock(func() time.Time { return r.time() }, func() (uint64, error) { return 1_000_000, nil })
		t.Cleanup(set.Workloads.Close)
	})
	r.files().clock = r.time
	r.files().interval = time.Second
	return r
}

func (r *holdersRig) time() time.Time {
	if r.rig == nil {
		return time.Now()
	}
	return r.now
}

func (r *holdersRig) files() *openFiles { return r.holders.(*openFiles) }

func (r *holdersRig) open(pid, fd int, target string) {
	r.m.Link("proc/"+strconv.Itoa(pid)+"/fd/"+strconv.Itoa(fd), target)
}

// held scrapes after a time, and returns the processes that are workloads then.
func (r *holdersRig) held(after time.Duration) []int {
	r.t.Helper()
	r.now = r.now.Add(after)
	md, err := r.scrape()
	require.NoError(r.t, err)
	for _, p := range scraperstest.PointsOf(md) {
		assert.Empty(r.t, p.Workload, "workloads have no points of TPUs")
	}
	r.now = r.now.Add(time.Second)
	view, err := r.files().workloads.Take(r.t.Context())
	require.NoError(r.t, err)
	var pids []int
	for _, w := range view.Workloads {
		for _, p := range w.Members {
			pids = append(pids, p.Pid)
		}
	}
	slices.Sort(pids)
	return pids
}

func TestProcessesThatHaveATPUAreWorkloads(t *testing.T) {
	r := newHoldersRig(t)
	assert.Empty(t, r.held(0))
	r.open(100, 3, "/dev/vfio/21")
	assert.Empty(t, r.held(time.Second), "it had none when it was looked at")
	assert.Equal(t, []int{100}, r.held(idleRecheck))
	assert.Equal(t, []int{100}, r.held(2*time.Second))
	r.m.Remove("proc/100/fd/3")
	assert.Empty(t, r.held(2*time.Second))
}

func TestFilesOfTPUs(t *testing.T) {
	for target, want := range map[string]bool{
		"/dev/accel0": true, "/dev/accel12": true, "/dev/vfio/20": true, "/dev/vfio/23": true,
		"/dev/vfio/7": false, "/dev/vfio/vfio": false, "/dev/accel/accel0": false, "/dev/accel": false,
		"/dev/vfio/20 (deleted)": false, "/tmp/dev/accel0": false, "socket:[1]": false,
	} {
		assert.Equal(t, want, isDeviceFile(target, []string{"20", "23"}), target)
	}
	assert.True(t, isDeviceFile("/dev/vfio/7", nil), "where no group is known")
}

func TestProcessesThatCannotBeLookedIntoAreSaidOnce(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may look into all")
	}
	r := newHoldersRig(t)
	require.NoError(t, os.Chmod(filepath.Join(r.m.Root, "proc/200/fd"), 0))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(r.m.Root, "proc/200/fd"), 0o700) })
	r.open(100, 3, "/dev/accel0")
	assert.Equal(t, []int{100}, r.held(0))
	assert.Equal(t, []int{100}, r.held(idleRecheck))
	assert.Equal(t, 1, r.logs.FilterMessageSnippet("cannot be looked into").Len())
}

func TestNobodyAsksForHolders(t *testing.T) {
	r := newRig(t, newMachine(t), endpoints(nobody(t)))
	assert.Nil(t, r.holders)
}
