// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// requireGone wants the target to be gone, and nothing to be broken.
func requireGone(t *testing.T, r *reading, what string) {
	t.Helper()
	require.Nil(t, r.first())
	require.Len(t, r.errs, 1)
	gone, ok := errors.AsType[*scrapers.GoneError](r.errs[0])
	require.True(t, ok, "%v", r.errs[0])
	require.Equal(t, what, gone.What)
	require.NotNil(t, r.memory)
	require.NotNil(t, r.disks)
	require.NotNil(t, r.network)
}

func TestProcess(t *testing.T) {
	m := aWholeMachine(t)
	assert.Equal(t, &workloadReading{
		at:       testStart,
		who:      &identity.Workload{Kind: "process", ID: "pid-77", Pid: 77, Executable: "python3"},
		key:      processKey{boot: "11111111-2222-3333-4444-555555555555\n", start: 4242},
		began:    testStart,
		pids:     []int{77},
		cpuTime:  12 * time.Second,
		threads:  5,
		rss:      256 * 4096,
		capacity: 2,
	}, m.read(m.source()).first())
}

func TestMemoryOfAProcessIsInPagesOfTheMachine(t *testing.T) {
	m := aWholeMachine(t)
	m.pageSize = 64 << 10
	assert.Equal(t, uint64(256*64<<10), m.read(m.source()).first().rss)
}

func TestNoTargetNoProcess(t *testing.T) {
	m := aWholeMachine(t)
	m.target = targetNone
	assert.Nil(t, m.read(m.source()).first())
}

func TestOurOwnProcessIsFoundInTheMountedProc(t *testing.T) {
	m := aWholeMachine(t)
	m.target = scrapers.Target{Self: true}
	src := m.source()
	r := src.read(t.Context(), want{})
	requireSources(t, r, workloadsName)
	require.ErrorContains(t, r.errs[0], "processes: finding the collector's own process: readlink")

	m.write(map[string]string{"proc/self": "-> x"})
	requireSources(t, src.read(t.Context(), want{}), workloadsName)

	m.write(map[string]string{"proc/self": "-> 77"})
	assert.Equal(t, 77, m.read(src).first().who.Pid)
	m.remove("proc/self")
	assert.Equal(t, 77, m.read(src).first().who.Pid, "it is known from then on")
}

func TestATargetThatIsGone(t *testing.T) {
	tests := []struct {
		name   string
		change func(*testMachine)
		want   string
	}{
		{"ended", func(m *testMachine) { m.remove("proc/77") }, "process 77 is gone"},
		{
			"another process has its pid",
			func(m *testMachine) {
				m.write(map[string]string{"proc/77/stat": pidStat(77, "python3", "S", 1000, 200, 5, 4243)})
			},
			"process 77 is gone",
		},
		{
			"a zombie",
			func(m *testMachine) {
				m.write(map[string]string{"proc/77/stat": pidStat(77, "python3", "Z", 1000, 200, 5, 4242)})
			},
			"process 77 is gone",
		},
		{
			"dead",
			func(m *testMachine) {
				m.write(map[string]string{"proc/77/stat": pidStat(77, "python3", "X", 1000, 200, 5, 4242)})
			},
			"process 77 is gone",
		},
		{"stat is empty", func(m *testMachine) { m.write(map[string]string{"proc/77/stat": ""}) }, "process 77 is gone"},
		{"ended between two reads", func(m *testMachine) { m.remove("proc/77/statm") }, "process 77 is gone"},
		{"statm is empty", func(m *testMachine) { m.write(map[string]string{"proc/77/statm": ""}) }, "process 77 is gone"},
		{
			"another boot of the machine",
			func(m *testMachine) { m.write(map[string]string{"proc/sys/kernel/random/boot_id": "other\n"}) },
			"process 77 is gone",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := aWholeMachine(t)
			src := m.source()
			require.NotNil(t, m.read(src).first())
			tt.change(m)
			for range 2 {
				requireGone(t, src.read(t.Context(), want{}), tt.want)
			}
		})
	}
}

func TestATargetThatIsNotThereYet(t *testing.T) {
	m := aWholeMachine(t)
	m.target.Pid = 78
	src := m.source()
	requireGone(t, src.read(t.Context(), want{}), "there is no process 78 below "+m.root+"/proc")
	m.write(map[string]string{
		"proc/78/stat":   pidStat(78, "late", "R", 0, 0, 1, 5000),
		"proc/78/statm":  "1 1 1 1 0 1 0\n",
		"proc/78/status": "Cpus_allowed_list:\t0\n",
	})
	assert.Equal(t, "late", m.read(src).first().who.Executable)
}

// A machine that does not show its boot id, or not always, has the same
// processes all the same.
func TestABootIDThatIsNotShownTellsNothing(t *testing.T) {
	const bootID = "proc/sys/kernel/random/boot_id"
	m := aWholeMachine(t)
	m.remove(bootID)
	s := m.scraper(false)
	for _, change := range []func(){
		func() {},
		func() { m.write(map[string]string{bootID: "first\n"}) },
		func() { m.remove(bootID) },
		func() { m.write(map[string]string{bootID: "first\n"}) },
	} {
		change()
		md, err := s.Scrape(t.Context())
		require.NoError(t, err)
		tags := tagsOf(md)
		require.Contains(t, tags, "proc.cpu.threads")
		if m.now != testStart {
			require.Contains(t, tags, "cpu")
		}
		m.wait(time.Second)
	}
	m.write(map[string]string{bootID: "second\n"})
	_, err := s.Scrape(t.Context())
	require.EqualError(t, err, "process 77 is gone")
}

func TestFilesOfAProcessThatFail(t *testing.T) {
	for name, isThere := range map[string]bool{"stat": false, "statm": false, "status": true} {
		m := aWholeMachine(t)
		m.remove("proc/77/" + name)
		m.write(map[string]string{"proc/77/" + name + "/": ""}) // a folder cannot be read
		r := m.source().read(t.Context(), want{})
		if name == "stat" {
			requireGone(t, r, "there is no process 77 below "+m.root+"/proc")
			continue
		}
		requireSources(t, r, workloadsName)
		assert.Equal(t, isThere, r.first() != nil, name)
	}
}

func TestCapacityOfAProcess(t *testing.T) {
	tests := []struct {
		name    string
		allowed string
		online  int
		want    float64
	}{
		{"CPUs that it may use", "0,2-3", 8, 3},
		{"as far as they are online", "0-63", 8, 8},
		{"unknown where the number online is", "0,2-3", 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := aWholeMachine(t)
			m.write(map[string]string{
				"proc/77/status": "Cpus_allowed_list:\t" + tt.allowed + "\n",
				"proc/stat":      "cpu  1 1 1 1\n" + strings.Repeat("cpu7 1 1 1 1\n", tt.online),
			})
			assert.InDelta(t, tt.want, m.read(m.source()).first().capacity, 0)
		})
	}
	t.Run("the number online where it ended before it told", func(t *testing.T) {
		m := aWholeMachine(t)
		m.remove("proc/77/status")
		assert.InDelta(t, 3, m.read(m.source()).first().capacity, 0)
	})
	t.Run("the number online where the list is not shown", func(t *testing.T) {
		m := aWholeMachine(t)
		m.write(map[string]string{"proc/77/status": "Name:\tx\n"})
		r := m.source().read(t.Context(), want{})
		requireSources(t, r) // sandboxes that imitate /proc leave it out: no fault
		assert.InDelta(t, 3, r.first().capacity, 0)
	})
}

func TestCPUUseOverAnInterval(t *testing.T) {
	m := aWholeMachine(t)
	s := m.scraper(false)
	scrape := func() map[string]float64 {
		md, err := s.Scrape(t.Context())
		require.NoError(t, err)
		return tagsOf(md)
	}
	assert.NotContains(t, scrape(), "cpu", "the first reading has no interval")

	// 150 ticks in 15 s on 2 CPUs. Children and time spent waiting for disks
	// are not the process' own.
	m.wait(15 * time.Second)
	stat := pidStat(77, "python3", "S", 1100, 250, 5, 4242)
	stat = strings.Replace(stat, " 5000 6000 ", " 9000 9000 ", 1)
	m.write(map[string]string{"proc/77/stat": strings.Replace(stat, " 999999 ", " 9999999 ", 1)})
	assert.InDelta(t, 5, scrape()["cpu"], 1e-9)

	assert.NotContains(t, scrape(), "cpu", "no time has passed")

	m.wait(10 * time.Second)
	assert.Zero(t, scrape()["cpu"])
	assert.Contains(t, scrape(), "proc.memory.rssMB")

	// More than all: it is not cut off at 100.
	m.wait(time.Second)
	m.write(map[string]string{"proc/77/stat": pidStat(77, "python3", "S", 1100, 550, 5, 4242)})
	assert.InDelta(t, 150, scrape()["cpu"], 1e-9)

	// Affinity changes at once.
	m.wait(time.Second)
	m.write(map[string]string{"proc/77/stat": pidStat(77, "python3", "S", 1100, 600, 5, 4242), "proc/77/status": "Cpus_allowed_list:\t1\n"})
	assert.InDelta(t, 50, scrape()["cpu"], 1e-9)
}

func TestCPUUseNeedsTwoReadingsOfOneProcess(t *testing.T) {
	at := func(seconds int, key processKey, cpuTime time.Duration, capacity float64) *workloadReading {
		return &workloadReading{at: testStart.Add(time.Duration(seconds) * time.Second), key: key, cpuTime: cpuTime, capacity: capacity}
	}
	one, other := processKey{"b", 1}, processKey{"b", 2}
	tests := []struct {
		name          string
		before, after *workloadReading
	}{
		{"no reading before", nil, at(1, one, time.Second, 1)},
		{"another process", at(0, other, 0, 1), at(1, one, time.Second, 1)},
		{"another boot", at(0, processKey{"a", 1}, 0, 1), at(1, one, time.Second, 1)},
		{"capacity unknown", at(0, one, 0, 1), at(1, one, time.Second, 0)},
		{"no time", at(1, one, 0, 1), at(1, one, time.Second, 1)},
		{"time went back", at(2, one, 0, 1), at(1, one, time.Second, 1)},
		{"used less than before", at(0, one, 2*time.Second, 1), at(1, one, time.Second, 1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, ok := cpuPercent(tt.before, tt.after)
			assert.False(t, ok)
		})
	}
	percent, ok := cpuPercent(at(0, one, time.Second, 4), at(2, one, 2*time.Second, 2))
	assert.True(t, ok)
	assert.InDelta(t, 25, percent, 1e-9)
}
