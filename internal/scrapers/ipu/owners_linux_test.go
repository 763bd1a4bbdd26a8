// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package ipu

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// theTree is the target with what it started, byName makes workloads of processes by
// their names, holding of those that hold a device.
var (
	theTree   = workload.Options{Target: scrapers.Target{Pid: 1000, Tree: true}}
	theTarget = workload.Options{Target: scrapers.Target{Pid: 1000}}
	byName    = workload.Options{Match: []workload.Rule{{Name: regexp.MustCompile("^(train|serve)$")}}}
	holding   = workload.Options{Discover: workload.Discover{GPU: true}}
)

// ownersRig is a machine where 1001 is a child of 1000, with IPUs whose session
// utilisation is the pid that is attached, in thousands of a percent.
type ownersRig struct {
	*rig

	tool program
}

func newOwnersRig(t testing.TB, o workload.Options) *ownersRig {
	t.Helper()
	r := newRig(t, options{workloads: o})
	r.machine.Process(1, 0, "init")
	r.machine.Process(1000, 1, "train")
	r.machine.Process(1001, 1000, "worker")
	r.machine.Process(3000, 1, "serve")
	return &ownersRig{r, r.install("gc-inventory", `cat "$D/list"`)}
}

// sessions scrapes IPUs with these pids attached, and returns the devices and their
// session utilisation on the machine's resource, and on all workloads'.
func (r *ownersRig) sessions(pids ...string) (machine, workloads map[string]float64) {
	r.t.Helper()
	var devices []string
	for i, pid := range pids {
		devices = append(devices, fmt.Sprintf(`{"id": "%d", "clock": "20MHz", "ipu utilisation (session)": "%d.5%%", "user process id": "%s"}`, i, i, pid))
	}
	r.tool.write("list", `{"devices": [`+strings.Join(devices, ",")+`]}`)
	md, err := r.Scrape(bounded(r.t))
	require.NoError(r.t, err)
	scraperstest.RequireSane(r.t, md)
	r.later(2 * time.Second)
	machine, workloads = map[string]float64{}, map[string]float64{}
	for _, p := range scraperstest.PointsOf(md) {
		id := fmt.Sprint(p.Attributes["device_id"])
		switch {
		case p.Workload != "":
			require.Equal(r.t, "ipu.sessionUtilisation", p.Metric.Name())
			workloads[p.Workload[:strings.IndexAny(p.Workload+"-", "-:")]+" "+id] = p.Value()
		case p.Metric.Name() == "ipu.sessionUtilisation":
			machine[id] = p.Value()
		}
	}
	return machine, workloads
}

// Without a pid every device counts; what is of a session is the workload's as well.
func TestSessionsBelongToTheWorkloadOfTheirProcess(t *testing.T) {
	r := newOwnersRig(t, byName)
	machine, workloads := r.sessions("1001", "3000", "N/A", "1001", "77", "")
	assert.Equal(t, map[string]float64{"0": 0.5, "1": 1.5, "2": 2.5, "3": 3.5, "4": 4.5, "5": 5.5}, machine)
	assert.Len(t, workloads, 3)
	var all []float64
	for _, v := range workloads {
		all = append(all, v)
	}
	assert.ElementsMatch(t, []float64{0.5, 3.5, 1.5}, all)
	_, workloads = r.sessions("77")
	assert.Empty(t, workloads)
}

// With a pid only its devices count, and its descendants' where those are wanted.
func TestOnlyTheDevicesOfTheConfiguredProcess(t *testing.T) {
	r := newOwnersRig(t, theTree)
	machine, workloads := r.sessions("1001", "3000", "N/A", "1000", "77")
	assert.Equal(t, map[string]float64{"0": 0.5, "3": 3.5}, machine)
	assert.Len(t, workloads, 2)
	machine, workloads = r.sessions("3000")
	assert.Empty(t, machine)
	assert.Empty(t, workloads)
	machine, _ = r.sessions("N/A", "")
	assert.Empty(t, machine, "nothing is attached")

	r = newOwnersRig(t, theTarget)
	machine, _ = r.sessions("1001", "3000", "N/A", "1000")
	assert.Equal(t, map[string]float64{"3": 3.5}, machine)

	require.NoError(t, os.RemoveAll(filepath.Join(r.machine.Root, "proc/1000")))
	machine, _ = r.sessions("1000")
	assert.Empty(t, machine, "it is gone")
}

func TestDuplicatesAreJudgedAfterTheProcess(t *testing.T) {
	r := newOwnersRig(t, theTree)
	r.tool.write("list", `[{"id": "0", "clock": "1MHz", "user process id": "3000"}, {"id": "0", "clock": "2MHz", "user process id": "1000"}]`)
	tags, err := r.tags()
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{"ipu.0.clock (MHz)": 2}, tags)
	assert.Empty(t, r.logs.FilterMessageSnippet("same number").All())
}

func TestProcessesThatAreAttachedAreWorkloads(t *testing.T) {
	r := newOwnersRig(t, holding)
	_, workloads := r.sessions("1001", "3000")
	assert.Len(t, workloads, 2, "with the first scrape")
	r.machine.Process(4000, 1, "other")
	_, workloads = r.sessions("4000", "77")
	assert.Len(t, workloads, 1)
	_, workloads = r.sessions("N/A")
	assert.Empty(t, workloads)
}

// A pid that is of another namespace or machine does not cost a look each time.
func TestStrangePidsAreLookedForOnce(t *testing.T) {
	r := newOwnersRig(t, byName)
	own := r.owners.(*pidOwners)
	own.interval = time.Hour
	_, _ = r.sessions("77", "1000")
	assert.Equal(t, []int{77}, own.strange)
	first, err := own.workloads.Recent(t.Context(), time.Hour)
	require.NoError(t, err)
	_, _ = r.sessions("77", "1000")
	second, err := own.workloads.Recent(t.Context(), time.Hour)
	require.NoError(t, err)
	assert.Same(t, first, second)
	r.machine.Process(4000, 1, "serve")
	_, workloads := r.sessions("77", "4000")
	assert.Len(t, workloads, 1, "a new one is")
}

// Without the processes nobody knows whose the devices are: with a pid none counts,
// without one all do.
func TestProcessesThatCannotBeRead(t *testing.T) {
	for _, o := range []workload.Options{theTree, byName} {
		r := newOwnersRig(t, o)
		require.NoError(t, os.RemoveAll(filepath.Join(r.machine.Root, "proc")))
		r.tool.write("list", `[{"clock": "20MHz", "user process id": "1000"}]`)
		tags, err := r.tags()
		assert.Equal(t, []string{"attribution of processes"}, sourcesOf(t, err))
		if o.Target.IsSet() {
			assert.Empty(t, tags)
		} else {
			assert.Len(t, tags, 1)
		}
	}
}

func TestWithoutWorkloadsNobodyIsAsked(t *testing.T) {
	assert.Nil(t, newOwners(&Config{}, scrapers.Settings{}))
	assert.Nil(t, newOwners(&Config{}, scrapers.Settings{Workloads: workload.NewDiscovery(workload.Options{})}))
}
