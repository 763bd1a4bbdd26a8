// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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
	theTree = workload.Options{Target: scrapers.Target{Pid: 1000, Tree: true}}
	byName  = workload.Options{Match: []workload.Rule{{Name: regexp.MustCompile("^(train|serve)$")}}}
	holding = workload.Options{Discover: workload.Discover{GPU: true}}
)

// ownersRig is the family with a tool that reports the runtimes of 1001 and 3000, on a
// machine where 1001 is a child of 1000.
type ownersRig struct {
	*rig

	machine scraperstest.Machine
	tool    string
	at      time.Time
}

func newOwnersRig(t testing.TB, o workload.Options) *ownersRig {
	t.Helper()
	m := scraperstest.NewMachine(t)
	m.Process(2, 0, "kthreadd")
	m.Process(1000, 1, "train")
	m.Process(1001, 1000, "worker")
	m.Process(3000, 1, "serve")
	made := &ownersRig{machine: m, at: time.Unix(1_800_000_000, 0)}
	made.tool = fakeTool(t, `n=0; while :; do
	n=$((n+1)); while ! [ -e "$D/line$n" ]; do sleep 0.01; done
	cat "$D/line$n"
done`)
	o.RootPath = m.Root
	discovery := workload.NewDiscovery(o).WithClock(func() time.Time { return made.at }, func() (uint64, error) { return 1_000_000, nil })
	t.Cleanup(discovery.Close)
	made.rig = newRig(t, m.Root, options{
		config: Config{NeuronMonitorPath: made.tool},
		set:    func(set *scrapers.Settings) { set.Workloads = discovery },
	})
	made.report(1, 1001, 3000)
	made.scraper.Prime(t.Context())
	made.awaitLines(1)
	return made
}

// report makes the tool's line of that number: the runtimes use as many bytes as their
// pids say.
func (r *ownersRig) report(number int, pids ...int) {
	r.t.Helper()
	var all []string
	for _, pid := range pids {
		all = append(all, entry(pid, "x", memory(`"host":`+strconv.Itoa(pid))))
	}
	name := filepath.Join(filepath.Dir(r.tool), "line"+strconv.Itoa(number))
	require.NoError(r.t, os.WriteFile(name+".new", []byte(line(all...)+"\n"), 0o600))
	require.NoError(r.t, os.Rename(name+".new", name))
}

// memory is what the machine (an empty name) and each workload use.
func (r *ownersRig) memory() map[string]float64 {
	r.t.Helper()
	md, err := r.scrape()
	require.NoError(r.t, err)
	r.at = r.at.Add(2 * time.Second)
	use := map[string]float64{}
	for _, p := range scraperstest.PointsOf(md) {
		use[p.Workload] = p.Value()
	}
	return use
}

func TestRuntimesBelongToTheWorkloadOfTheirProcess(t *testing.T) {
	r := newOwnersRig(t, theTree)
	use := r.memory()
	assert.InDelta(t, 4001, use[""], 0)
	assert.Len(t, use, 2)
	delete(use, "")
	for _, bytes := range use {
		assert.InDelta(t, 1001, bytes, 0, "a descendant's counts")
	}

	r.shutdown()
	r = newOwnersRig(t, byName)
	var all []float64
	for _, bytes := range r.memory() {
		all = append(all, bytes)
	}
	assert.ElementsMatch(t, []float64{4001, 1001, 3000}, all)
}

func TestProcessesWithRuntimesAreWorkloads(t *testing.T) {
	r := newOwnersRig(t, holding)
	assert.Len(t, r.memory(), 3, "with the first scrape")
	r.machine.Process(4000, 1, "other")
	r.report(2, 4000)
	r.awaitLines(2)
	use := r.memory()
	assert.Len(t, use, 2)
	assert.InDelta(t, 4000, use[""], 0)
}

func TestForeignPidsAreNobodys(t *testing.T) {
	r := newOwnersRig(t, theTree)
	r.machine.Process(2, 1, "other") // no parent of the kernel's threads
	for range 2 {
		assert.Equal(t, map[string]float64{"": 4001}, r.memory())
	}
	require.Len(t, r.logs.FilterMessageSnippet("not attributed").All(), 1)
	r.machine.Process(2, 0, "kthreadd")
	assert.Len(t, r.memory(), 2)
}

func TestWithoutWorkloadsNobodyIsAsked(t *testing.T) {
	assert.Nil(t, newOwners(&Config{}, scrapers.Settings{}))
	assert.Nil(t, newOwners(&Config{}, scrapers.Settings{Workloads: workload.NewDiscovery(workload.Options{})}))
}
