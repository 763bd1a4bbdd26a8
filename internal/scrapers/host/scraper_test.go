// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// givenSource replays readings: the last one again and again.
type givenSource struct {
	readings []*reading
	wanted   want
}

func (s *givenSource) read(_ context.Context, w want) *reading {
	s.wanted = w
	r := s.readings[0]
	if len(s.readings) > 1 {
		s.readings = s.readings[1:]
	}
	return r
}

func (s *givenSource) counters(ctx context.Context) *reading { return s.read(ctx, want{}) }

func (*givenSource) close() {}

func scraperOf(t *testing.T, extended bool, readings ...*reading) *hostScraper {
	t.Helper()
	cfg := defaultConfig().(*Config)
	cfg.DiskPaths = []string{"/", "/data"}
	return newScraperFor(sampleSettings(t, t.TempDir(), extended), cfg, &givenSource{readings: readings})
}

// scrapeTags scrapes once, without an error.
func scrapeTags(t *testing.T, s *hostScraper) map[string]float64 {
	t.Helper()
	md, err := s.Scrape(t.Context())
	require.NoError(t, err)
	requireSane(t, md)
	return tagsOf(md)
}

func TestMemoryPoints(t *testing.T) {
	tests := []struct {
		name    string
		reading *memoryReading
		want    map[string]float64
	}{
		{
			name:    "with swap",
			reading: &memoryReading{total: 8 * mebi, available: 2 * mebi, swapTotal: 4 * mebi, swapUsed: mebi},
			want: map[string]float64{
				"memory_percent": 75, "proc.memory.availableMB": 2, "memory.used": 6 * mebi, "memory.used_percent": 75, "swap.used": mebi, "swap.used_percent": 25,
			},
		},
		{
			name:    "without swap",
			reading: &memoryReading{total: 8 * mebi, available: 8 * mebi},
			want:    map[string]float64{"memory_percent": 0, "proc.memory.availableMB": 8, "memory.used": 0, "memory.used_percent": 0, "swap.used": 0},
		},
		{name: "a machine without memory is none", reading: &memoryReading{}, want: map[string]float64{}},
		{name: "no reading", want: map[string]float64{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			compareTags(t, "tags", tt.want, scrapeTags(t, scraperOf(t, true, &reading{memory: tt.reading})))
		})
	}
}

func TestFileSystemPoints(t *testing.T) {
	tests := []struct {
		name    string
		reading filesystemReading
		want    map[string]float64
	}{
		{
			name:    "percent is of what ordinary users can use, as df has it",
			reading: filesystemReading{path: "/data", blocks: true, used: 3 * gibi, available: gibi},
			want:    map[string]float64{"disk./data.usageGB": 3, "disk./data.usagePercent": 75},
		},
		{
			name:    "the first path is `disk` too",
			reading: filesystemReading{path: "/", blocks: true, used: 3 * gibi, available: gibi},
			want:    map[string]float64{"disk./.usageGB": 3, "disk./.usagePercent": 75, "disk": 75},
		},
		{
			name:    "empty",
			reading: filesystemReading{path: "/data", blocks: true, available: gibi},
			want:    map[string]float64{"disk./data.usageGB": 0, "disk./data.usagePercent": 0},
		},
		{name: "no blocks", reading: filesystemReading{path: "/data"}, want: map[string]float64{}},
		{name: "nothing used and nothing available", reading: filesystemReading{path: "/data", blocks: true}, want: map[string]float64{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := scrapeTags(t, scraperOf(t, true, &reading{filesystems: []filesystemReading{tt.reading}}))
			compareTags(t, "tags", tt.want, got)
		})
	}
}

func TestDiskPoints(t *testing.T) {
	backing := deviceReading{name: "dm-0", read: mebi, written: mebi, backing: true}
	s := scraperOf(t, false,
		&reading{disks: disksAt(0, baseDisk("sda", 0, 0), deviceReading{name: "dm-0", backing: true}, notBaseDisk("sda1", 0, 0))},
		&reading{disks: disksAt(1, baseDisk("sda", mebi, 2*mebi), backing, notBaseDisk("sda1", mebi, mebi))},
		&reading{disks: disksAt(2, backing)},
		&reading{disks: disksAt(3)},
		&reading{},
	)
	s.Prime(t.Context())
	compareTags(t, "grown", map[string]float64{
		"disk.in": 1, "disk.out": 2, "disk.sda.in": 1, "disk.sda.out": 2, "disk.dm-0.in": 1, "disk.dm-0.out": 1,
	}, scrapeTags(t, s))
	compareTags(t, "sda is gone", map[string]float64{"disk.in": 1, "disk.out": 2, "disk.dm-0.in": 1, "disk.dm-0.out": 1}, scrapeTags(t, s))
	compareTags(t, "no devices", map[string]float64{}, scrapeTags(t, s))
	compareTags(t, "no reading", map[string]float64{}, scrapeTags(t, s))
}

func TestNetworkPoints(t *testing.T) {
	s := scraperOf(t, false,
		&reading{network: interfacesAt(0, iface("eth0", 5, 5), ifaceAside("lo", 5, 5))},
		&reading{network: interfacesAt(1, iface("eth0", 8, 9), ifaceAside("lo", 99, 99))},
		&reading{},
	)
	compareTags(t, "the first", map[string]float64{"network.recv": 0, "network.sent": 0}, scrapeTags(t, s))
	compareTags(t, "grown", map[string]float64{"network.recv": 3, "network.sent": 4}, scrapeTags(t, s))
	compareTags(t, "no reading", map[string]float64{}, scrapeTags(t, s))
}

func TestCorePoints(t *testing.T) {
	cores := func(cores ...coreReading) *reading { return &reading{cores: cores} }
	s := scraperOf(t, true,
		cores(coreReading{0, 100, 1000}, coreReading{3, 100, 1000}),
		cores(coreReading{0, 125, 1100}, coreReading{3, 100, 1100}, coreReading{5, 1, 1}),
		cores(coreReading{0, 125, 1100}, coreReading{3, 90, 1200}, coreReading{5, 1, 2}),
		cores(coreReading{0, 425, 1200}, coreReading{3, 91, 1201}),
	)
	assert.True(t, s.want.cores)
	compareTags(t, "the first", map[string]float64{}, scrapeTags(t, s))
	compareTags(t, "one is new", map[string]float64{"cpu.0.cpu_percent": 25, "cpu.3.cpu_percent": 0}, scrapeTags(t, s))
	compareTags(t, "one stood still, one fell", map[string]float64{"cpu.5.cpu_percent": 0}, scrapeTags(t, s))
	compareTags(t, "never above 100", map[string]float64{"cpu.0.cpu_percent": 100, "cpu.3.cpu_percent": 100}, scrapeTags(t, s))
}

var somebody = &identity.Workload{Kind: "process", ID: "pid-77", Pid: 77, Executable: "python3"}

func TestProcessPoints(t *testing.T) {
	process := &workloadReading{who: somebody, threads: 5, rss: 2 * mebi, key: processKey{start: 1}}
	memory := &memoryReading{total: 8 * mebi, available: 8 * mebi}

	md, err := scraperOf(t, false, &reading{workloads: []*workloadReading{process}, memory: memory}).Scrape(t.Context())
	require.NoError(t, err)
	requireSane(t, md)
	require.Equal(t, 2, md.ResourceMetrics().Len(), "the machine and the process never share a resource")
	workload := md.ResourceMetrics().At(1)
	pid, ok := workload.Resource().Attributes().Get("process.pid")
	require.True(t, ok)
	assert.Equal(t, int64(77), pid.Int())
	var names []string
	for _, m := range workload.ScopeMetrics().At(0).Metrics().All() {
		names = append(names, m.Name())
	}
	assert.ElementsMatch(t, []string{"proc.cpu.threads", "proc.memory.rssMB", "proc.memory.percent"}, names)

	compareTags(t, "memory of the machine unknown", map[string]float64{"proc.cpu.threads": 5, "proc.memory.rssMB": 2},
		scrapeTags(t, scraperOf(t, false, &reading{workloads: []*workloadReading{process}})))
}

// What the system does not tell of a process has no point, rather than a 0.
func TestProcessPointsThatAreNotTold(t *testing.T) {
	memory := &memoryReading{total: 8 * mebi, available: 8 * mebi}
	tests := []struct {
		name    string
		process workloadReading
		want    []string
	}{
		{"threads", workloadReading{who: somebody, rss: mebi, noThreads: true}, []string{"proc.memory.rssMB", "proc.memory.percent"}},
		{"memory", workloadReading{who: somebody, threads: 1, noRSS: true}, []string{"proc.cpu.threads"}},
		{"memory under a limit", workloadReading{who: somebody, threads: 1, noRSS: true, memory: &limitReading{limit: 4, used: 2, headroom: 2}}, []string{"proc.cpu.threads"}},
		{"either", workloadReading{who: somebody, noThreads: true, noRSS: true}, nil},
		{"a 0 that is told is one", workloadReading{who: somebody}, []string{"proc.cpu.threads", "proc.memory.rssMB", "proc.memory.percent"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for tag := range scrapeTags(t, scraperOf(t, false, &reading{workloads: []*workloadReading{&tt.process}, memory: memory})) {
				if strings.HasPrefix(tag, "proc.") && tag != "proc.memory.availableMB" {
					got = append(got, tag)
				}
			}
			assert.ElementsMatch(t, tt.want, got)
		})
	}
}

func TestErrorsAreJoinedAndTheRestIsThere(t *testing.T) {
	broken := &scrapers.SourceError{Source: "diskstats", Err: errors.New("broken")}
	gone := &scrapers.GoneError{What: "process 1 is gone"}
	md, err := scraperOf(t, false, &reading{memory: &memoryReading{total: 2, available: 1}, errs: []error{broken, gone}}).Scrape(t.Context())
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, err, gone)
	assert.Equal(t, 2, md.DataPointCount())
}

// allOff switches every metric off.
func allOff(metrics *metadata.MetricsConfig) {
	v := reflect.ValueOf(metrics).Elem()
	for _, field := range v.Fields() {
		field.FieldByName("Enabled").SetBool(false)
	}
}

func TestEverythingOffYieldsNothing(t *testing.T) {
	set := sampleSettings(t, t.TempDir(), true)
	allOff(&set.Metrics.Metrics)
	everything := &reading{
		memory:      &memoryReading{total: 2, available: 1, swapTotal: 2, swapUsed: 1},
		filesystems: []filesystemReading{{path: "/", blocks: true, used: 1, available: 1}},
		disks:       disksAt(0, baseDisk("sda", 1, 1)),
		network:     interfacesAt(0, iface("eth0", 1, 1)),
		cores:       []coreReading{{0, 1, 2}},
		workloads:   []*workloadReading{{who: somebody, threads: 1, rss: 1}},
	}
	src := &givenSource{readings: []*reading{everything}}
	s := newScraperFor(set, defaultConfig().(*Config), src)
	require.NoError(t, s.Start(t.Context(), nil))
	for range 2 {
		md, err := s.Scrape(t.Context())
		require.NoError(t, err)
		assert.Zero(t, md.ResourceMetrics().Len())
	}
	assert.False(t, src.wanted.cores, "what is not wanted is not read")
	require.NoError(t, s.Shutdown(t.Context()))
}

func TestPointsCarryTheTimeOfTheScrapeAndSumsTheTimeOfTheirBaseline(t *testing.T) {
	s := scraperOf(t, false,
		&reading{disks: disksAt(1, baseDisk("sda", 1, 1))},
		&reading{disks: disksAt(5, baseDisk("sda", 1, 1)), network: interfacesAt(6, iface("eth0", 1, 1))},
		&reading{disks: disksAt(9, baseDisk("sda", 1, 1)), network: interfacesAt(9, iface("eth0", 1, 1))},
	)
	s.clock = func() time.Time { return testStart.Add(10 * time.Second) }
	s.Prime(t.Context())
	for range 2 {
		md, err := s.Scrape(t.Context())
		require.NoError(t, err)
		for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			start := timestamp(testStart.Add(time.Second))
			if m.Name() == "network.recv" || m.Name() == "network.sent" {
				start = timestamp(testStart.Add(6 * time.Second))
			}
			for _, p := range pointsOf(m).All() {
				assert.Equal(t, start, p.StartTimestamp(), m.Name())
				assert.Equal(t, timestamp(testStart.Add(10*time.Second)), p.Timestamp(), m.Name())
			}
		}
	}
}

func TestFactory(t *testing.T) {
	factory := NewFactory()
	assert.Equal(t, "host", factory.Name)
	first := factory.DefaultConfig()
	assert.NotSame(t, first, factory.DefaultConfig())
	set := sampleSettings(t, "", false)
	set.RootPath = ""
	s, err := factory.New(set, factory.DefaultConfig())
	require.NoError(t, err)
	assert.Implements(t, (*scrapers.Primer)(nil), s)

	bad := factory.DefaultConfig().(*Config)
	bad.Network.Include = []string{"("}
	_, err = factory.New(set, bad)
	assert.ErrorContains(t, err, `network: include: "("`)
}
