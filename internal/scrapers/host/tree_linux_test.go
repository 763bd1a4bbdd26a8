// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// treeStat is a /proc/PID/stat with a parent and times of children.
func treeStat(pid, parent int, state string, own, children, threads, start int) string {
	stat := pidStat(pid, "python3", state, own, 0, threads, start)
	stat = strings.Replace(stat, ") "+state+" 1 ", fmt.Sprintf(") %s %d ", state, parent), 1)
	return strings.Replace(stat, " 5000 6000 ", fmt.Sprintf(" %d 0 ", children), 1)
}

// member makes the files of a process of a tree.
func member(pid, parent int, state string, own, children, threads, start, pages int) map[string]string {
	dir := "proc/" + strconv.Itoa(pid) + "/"
	return map[string]string{
		dir + "stat":         treeStat(pid, parent, state, own, children, threads, start),
		dir + "statm":        fmt.Sprintf("10000 %d 100 1 0 1000 0\n", pages),
		dir + "smaps_rollup": fmt.Sprintf("00400000-7ffff000 ---p 00000000 00:00 0 [rollup]\nRss: %d kB\nPss: %d kB\n", pages*4, pages*2),
	}
}

// aTree is 77 with two workers, a worker's worker, a zombie and a stranger.
func aTree(t *testing.T) *testMachine {
	t.Helper()
	m := aWholeMachine(t)
	m.target.Tree = true
	m.bootTicks = 10_000
	m.write(member(77, 1, "S", 1000, 0, 5, 4242, 256))
	m.write(member(78, 77, "R", 500, 0, 2, 4300, 128))
	m.write(member(79, 77, "S", 100, 0, 1, 4300, 64))
	m.write(member(80, 78, "S", 10, 0, 3, 4400, 32))
	m.write(member(81, 77, "Z", 10, 0, 1, 4400, 0))
	m.write(member(90, 1, "S", 9999, 0, 99, 4400, 9999))
	return m
}

func TestTree(t *testing.T) {
	m := aTree(t)
	p := m.read(m.source()).first()
	slices.Sort(p.pids)
	assert.Equal(t, &workloadReading{
		at:       testStart,
		who:      &identity.Workload{Kind: "process", ID: "pid-77", Pid: 77, Executable: "python3"},
		key:      processKey{boot: "11111111-2222-3333-4444-555555555555\n", start: 4242},
		began:    testStart.Add(-(10_000 - 4242) * 10 * time.Millisecond),
		pids:     []int{77, 78, 79, 80},
		threads:  5 + 2 + 1 + 3,
		rss:      (256 + 128 + 64 + 32) * 4096,
		capacity: 2,
	}, p)
	m.pageSize = 64 << 10
	assert.Equal(t, uint64((256+128+64+32)*64<<10), m.read(m.source()).first().rss)
}

func TestTreeMembersThatEndAfterTheSnapshot(t *testing.T) {
	m := aTree(t)
	m.remove("proc/79/statm")
	m.write(map[string]string{"proc/80/statm": ""})
	p := m.read(m.source()).first()
	assert.Equal(t, 7, p.threads)
	assert.Equal(t, uint64(256+128)*4096, p.rss)
}

func TestTreeWhoseRootIsGone(t *testing.T) {
	tests := map[string]func(*testMachine){
		"ended":                    func(m *testMachine) { m.remove("proc/77") },
		"a zombie":                 func(m *testMachine) { m.write(member(77, 1, "Z", 1000, 0, 1, 4242, 0)) },
		"another has its pid":      func(m *testMachine) { m.write(member(77, 1, "S", 1000, 0, 5, 4243, 256)) },
		"ended after the snapshot": func(m *testMachine) { m.remove("proc/77/statm") },
		"another boot": func(m *testMachine) {
			m.write(map[string]string{"proc/sys/kernel/random/boot_id": "other\n"})
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			m := aTree(t)
			src := m.source()
			require.NotNil(t, m.read(src).first())
			change(m)
			for range 2 {
				requireGone(t, src.read(t.Context(), want{}), "process 77 is gone")
			}
		})
	}
	m := aTree(t)
	m.write(member(77, 1, "Z", 1000, 0, 1, 4242, 0))
	requireGone(t, m.source().read(t.Context(), want{}), "there is no process 77 below "+m.root+"/proc")
}

// A process that is not understood may be a member: the rest is there, and one
// error.
func TestTreeWithABadProcess(t *testing.T) {
	bad := strings.Replace(treeStat(79, 77, "S", 100, 0, 1, 4300), " 100 0 ", " x 0 ", 1)
	m := aTree(t)
	m.write(map[string]string{"proc/79/stat": bad})
	r := m.source().read(t.Context(), want{})
	requireSources(t, r, workloadsName)
	require.EqualError(t, r.errs[0], `processes: process 79: stat: field 14 not understood: "x"`)
	assert.Equal(t, 10, r.first().threads)

	m = aTree(t)
	m.write(map[string]string{"proc/77/stat": strings.ReplaceAll(bad, "79", "77")})
	r = m.source().read(t.Context(), want{})
	requireSources(t, r, workloadsName)
	assert.Nil(t, r.first())
	assert.NotNil(t, r.memory)
}

func TestCPUUseOfATree(t *testing.T) {
	m := aTree(t)
	s := m.scraper(false)
	assert.NotContains(t, scrapeTags(t, s), "cpu")

	// In 10 s: the root 100 ticks, a worker 50 more and its end, another 200,
	// a new one 30. The zombie is waited for. On 2 CPUs.
	m.wait(10 * time.Second)
	m.bootTicks += 1000
	m.remove("proc/79", "proc/81")
	m.write(member(77, 1, "S", 1100, 150+10, 5, 4242, 256))
	m.write(member(78, 77, "S", 700, 0, 2, 4300, 128))
	m.write(member(82, 77, "S", 30, 0, 1, 10_500, 1))
	assert.InDelta(t, 100*(100+50+200+30)/1000.0/2, scrapeTags(t, s)["cpu"], 1e-9)

	// The boot id is not shown for once.
	m.wait(10 * time.Second)
	m.bootTicks += 1000
	m.remove("proc/sys/kernel/random/boot_id")
	m.write(member(78, 77, "S", 900, 0, 2, 4300, 128))
	assert.InDelta(t, 10, scrapeTags(t, s)["cpu"], 1e-9)

	// How many CPUs there are is not known.
	m.wait(10 * time.Second)
	m.remove("proc/stat")
	md, err := s.Scrape(t.Context())
	require.Error(t, err)
	tags := tagsOf(md)
	assert.NotContains(t, tags, "cpu")
	assert.Contains(t, tags, "proc.cpu.threads")
}

func TestPSS(t *testing.T) {
	for _, tree := range []bool{true, false} {
		m := aTree(t)
		m.target.Tree = tree
		r := m.source().read(t.Context(), want{pss: true})
		requireSources(t, r)
		pages := uint64(256)
		if tree {
			pages += 128 + 64 + 32
		}
		assert.Equal(t, pages*2048, r.first().pss)
	}
	m := aTree(t)
	assert.Zero(t, m.read(m.source()).first().pss, "only on demand")

	m.remove("proc/78/smaps_rollup")
	m.write(map[string]string{"proc/79/smaps_rollup": ""})
	assert.Equal(t, uint64(256+32)*2048, m.source().read(t.Context(), want{pss: true}).first().pss, "those that ended have none")
}

func TestPSSOfKernelsWithoutIt(t *testing.T) {
	m := aTree(t)
	m.remove("proc/77/smaps_rollup", "proc/78/smaps_rollup", "proc/79/smaps_rollup", "proc/80/smaps_rollup")
	s := m.scraper(true)
	tags := scrapeTags(t, s)
	assert.NotContains(t, tags, "proc.memory.pssMB")
	assert.Contains(t, tags, "proc.memory.rssMB")
}

func TestPSSWithoutTheRightToTrace(t *testing.T) {
	m := aTree(t)
	require.NoError(t, os.Chmod(filepath.Join(m.root, "proc/78/smaps_rollup"), 0))
	if os.Geteuid() == 0 {
		asNobody(t, m.root)
	}
	s := m.scraper(true)
	md, err := s.Scrape(t.Context())
	require.ErrorContains(t, err, "smaps_rollup: proc.memory.pssMB needs root or CAP_SYS_PTRACE: open "+m.root+"/proc/78/smaps_rollup")
	assert.NotContains(t, err.Error(), "\n", "one error")
	tags := tagsOf(md)
	assert.NotContains(t, tags, "proc.memory.pssMB", "a part would look like less memory")
	for _, tag := range []string{"proc.memory.rssMB", "proc.cpu.threads", "proc.memory.percent", "memory_percent", "disk.in", "network.recv"} {
		assert.Contains(t, tags, tag)
	}
}

// The memory of big processes takes seconds to add up. That costs nothing else.
func TestPSSThatHangs(t *testing.T) {
	for _, tree := range []bool{true, false} {
		t.Run(strconv.FormatBool(tree), func(t *testing.T) {
			t.Parallel()
			m := aTree(t)
			m.target.Tree = tree
			const file = "proc/77/smaps_rollup"
			content, err := os.ReadFile(filepath.Join(m.root, file))
			require.NoError(t, err)
			m.fifo(file)
			src := m.source()
			for _, ctx := range []context.Context{shortly(t), t.Context()} { // it is given up, and then left alone
				r := src.read(ctx, want{pss: true})
				requireSources(t, r, "smaps_rollup")
				require.ErrorContains(t, r.errs[0], "proc.memory.pssMB")
				require.NotNil(t, r.first())
				assert.Zero(t, r.first().pss)
				assert.Positive(t, r.first().threads)
				assert.Positive(t, r.first().rss)
				assert.InDelta(t, 2, r.first().capacity, 0)
			}
			fifo := filepath.Join(m.root, file)
			require.NoError(t, os.Rename(fifo, fifo+".fifo"))
			m.write(map[string]string{file: string(content)})
			release(fifo + ".fifo")
			require.True(t, src.pss.slot.Settle(t.Context()))
			r := src.read(t.Context(), want{pss: true})
			requireSources(t, r)
			assert.Positive(t, r.first().pss)
		})
	}
}

// Another source that hangs takes no time from it.
func TestPSSBesideASourceThatHangs(t *testing.T) {
	t.Parallel()
	m := aTree(t)
	m.fifo("proc/diskstats")
	r := m.source().read(shortly(t), want{pss: true})
	requireSources(t, r, "diskstats")
	assert.Equal(t, uint64(256+128+64+32)*2048, r.first().pss)
}

func TestPSSOfAProcessThatHangsIsNotAskedFor(t *testing.T) {
	t.Parallel()
	m := aTree(t)
	m.fifo("proc/77/statm")
	src := m.source()
	for _, ctx := range []context.Context{shortly(t), t.Context()} {
		r := src.read(ctx, want{pss: true})
		requireSources(t, r, workloadsName)
		assert.Nil(t, r.first())
	}
}

// Of many processes the next is not begun when the time is up.
func TestPSSStopsWhenTheTimeIsUp(t *testing.T) {
	m := aTree(t)
	s := &pssSource{proc: filepath.Join(m.root, "proc")}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.read(ctx, [][]int{{77}})
	require.ErrorIs(t, err, context.Canceled)
}

// asNobody goes on without the rights of root.
func asNobody(t *testing.T, root string) {
	t.Helper()
	const nobody = 65534
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	}))
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	if err := syscall.Seteuid(nobody); err != nil {
		t.Skipf("cannot give up being root: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, syscall.Seteuid(0)) })
	if f, err := os.Open(filepath.Join(root, "proc/78/smaps_rollup")); err == nil {
		_ = f.Close()
		t.Skip("may read everything all the same")
	}
}

func TestPSSOfOurOwnTree(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "cat")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}()
	cfg := defaultConfig().(*Config)
	src, err := newSource(cfg, settingsOf(scrapers.Target{Self: true, Tree: true}))
	require.NoError(t, err)
	defer src.close()
	r := src.read(t.Context(), want{pss: true})
	require.NotNil(t, r.first(), "%v", r.errs)
	if r.first().pss == 0 {
		t.Skipf("not shown here: %v", r.errs)
	}
	// rss is batched by the kernel and lags.
	assert.Less(t, r.first().pss, r.first().rss+16*mebi)
	assert.Greater(t, r.first().pss, uint64(100<<10))
	assert.Greater(t, r.first().threads, 1)
}

// limited puts the target into a group of version 2.
func limited(t *testing.T, limit, quota string) *testMachine {
	t.Helper()
	m := aTree(t)
	const dir = "sys/fs/cgroup/job/"
	m.write(map[string]string{
		"proc/77/cgroup":           "0::/job\n",
		dir + "memory.max":         limit + "\n",
		dir + "memory.current":     strconv.Itoa(12*mebi) + "\n",
		dir + "memory.stat":        fmt.Sprintf("file %d\nshmem %d\ninactive_file %d\n", 6*mebi, 1*mebi, 2*mebi),
		dir + "cpu.max":            quota + "\n",
		dir + "cgroup.controllers": "cpu memory\n",
	})
	return m
}

// workloadTags are those of the target's own resource.
func workloadTags(t *testing.T, m *testMachine) map[string]float64 {
	t.Helper()
	md, err := m.scraper(false).Scrape(t.Context())
	require.NoError(t, err)
	requireSane(t, md)
	host := tagsOf(hostOf(md))
	assert.InDelta(t, 75, host["memory_percent"], 1e-9, "the machine's own stay the machine's")
	assert.InDelta(t, 25000.0/1024, host["proc.memory.availableMB"], 1e-9)
	require.Equal(t, 2, md.ResourceMetrics().Len())
	md.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
		_, isProcess := rm.Resource().Attributes().Get("process.pid")
		return !isProcess
	})
	return tagsOf(md)
}

func TestLimitsOfAWorkload(t *testing.T) {
	const rss = (256 + 128 + 64 + 32) * 4096.0 / mebi
	machine := map[string]float64{
		"proc.cpu.threads": 11, "proc.memory.rssMB": rss,
		"proc.memory.percent": 100 * rss / (100000.0 / 1024),
	}
	limitedTo := func(used float64) map[string]float64 {
		return map[string]float64{
			"proc.cpu.threads": 11, "proc.memory.rssMB": rss, "proc.memory.percent": 100 * rss / 20,
			"memory_percent": 100 * used / 20, "proc.memory.availableMB": 20 - used,
		}
	}
	tests := []struct {
		name, limit string
		use         cgroup.MemoryUse
		want        map[string]float64
	}{
		{"no limit", "max", cgroup.WorkingSet, machine},
		{"more than the machine has", "102400001", cgroup.WorkingSet, machine},
		{"a limit", strconv.Itoa(20 * mebi), cgroup.WorkingSet, limitedTo(10)},
		{"a limit, all that is charged", strconv.Itoa(20 * mebi), cgroup.Usage, limitedTo(12)},
		{"a limit, without files", strconv.Itoa(20 * mebi), cgroup.Anon, limitedTo(7)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := limited(t, tt.limit, "max 100000")
			m.cfg.CgroupMemory = tt.use
			compareTags(t, "workload", tt.want, workloadTags(t, m))
		})
	}
	t.Run("the machine has less left than the limit leaves", func(t *testing.T) {
		m := limited(t, strconv.Itoa(60*mebi), "max 100000")
		assert.InDelta(t, 25000.0/1024, workloadTags(t, m)["proc.memory.availableMB"], 1e-9)
	})
}

func TestCPUDenominator(t *testing.T) {
	tests := []struct {
		name        string
		denominator cpuDenominator
		quota       string
		want        float64
	}{
		{"those it may use", denominatorAvailable, "max 100000", 2},
		{"as far as the quota goes", denominatorAvailable, "150000 100000", 1.5},
		{"a quota below one", denominatorAvailable, "25000 100000", 0.25},
		{"a quota above what there is", denominatorAvailable, "900000 100000", 2},
		{"all", denominatorLogical, "25000 100000", 3},
		{"cores", denominatorPhysical, "25000 100000", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := limited(t, "max", tt.quota)
			m.cfg.CPUDenominator = tt.denominator
			assert.InDelta(t, tt.want, m.read(m.source()).first().capacity, 1e-9)
		})
	}
	t.Run("cores that are not told", func(t *testing.T) {
		m := limited(t, "max", "25000 100000")
		m.cfg.CPUDenominator = denominatorPhysical
		m.remove("sys/devices", "proc/cpuinfo")
		assert.InDelta(t, 3, m.read(m.source()).first().capacity, 1e-9)
	})
}

func TestLimitsAreReadAtEachScrape(t *testing.T) {
	m := limited(t, strconv.Itoa(20*mebi), "150000 100000")
	src := m.source()
	p := m.read(src).first()
	assert.Equal(t, uint64(20*mebi), p.memory.limit)
	assert.InDelta(t, 1.5, p.capacity, 1e-9)
	m.write(map[string]string{"sys/fs/cgroup/job/memory.max": "31457280\n", "sys/fs/cgroup/job/cpu.max": "50000 100000\n"})
	p = m.read(src).first()
	assert.Equal(t, uint64(30*mebi), p.memory.limit)
	assert.InDelta(t, 0.5, p.capacity, 1e-9)
}

func TestGroupsThatCannotBeRead(t *testing.T) {
	m := limited(t, strconv.Itoa(20*mebi), "50000 100000")
	m.remove("proc/77/cgroup")
	p := m.read(m.source()).first()
	assert.Nil(t, p.memory, "a kernel without groups")
	assert.InDelta(t, 2, p.capacity, 1e-9)

	m.write(map[string]string{"proc/77/cgroup/": ""})
	r := m.source().read(t.Context(), want{})
	requireSources(t, r, workloadsName)
	require.ErrorContains(t, r.errs[0], "reading the groups")
	require.NotNil(t, r.first())
	assert.Equal(t, 11, r.first().threads)
	assert.Nil(t, r.first().memory)
}

// A machine whose memory is not known still has limits.
func TestLimitsWithoutMeminfo(t *testing.T) {
	m := limited(t, strconv.Itoa(20*mebi), "max")
	m.remove("proc/meminfo")
	r := m.source().read(t.Context(), want{})
	requireSources(t, r, "meminfo")
	assert.Equal(t, &limitReading{limit: 20 * mebi, used: 10 * mebi, headroom: 10 * mebi}, r.first().memory)
}
