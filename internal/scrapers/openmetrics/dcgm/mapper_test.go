// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// rig is a mapper with a clock that the test moves.
type rig struct {
	t *testing.T
	*Mapper
	parser *exposition.Parser
	now    time.Time
}

func newRig(t *testing.T, source Source, extended bool) *rig {
	t.Helper()
	set, _ := scraperstest.NewSettings(t, t.TempDir(), extended)
	set.GPUs = &gpus.Measured{}
	return &rig{t: t, Mapper: New(set, source), parser: exposition.New(exposition.Options{}), now: time.Unix(1_800_000_000, 0)}
}

// series are those of a text, each line one.
func (r *rig) series(text string) []Row {
	r.t.Helper()
	scrape, err := r.parser.Parse([]byte(text), "text/plain; version=0.0.4", nil)
	require.NoError(r.t, err)
	require.Zero(r.t, scrape.Skipped, scrape.SkippedLines)
	var rows []Row
	for _, f := range scrape.Families {
		for _, s := range f.Samples {
			rows = append(rows, Row{f.Name, s.Labels, s.Value})
		}
	}
	return rows
}

// emit scrapes rows, ten seconds after the last ones.
func (r *rig) emit(rows []Row) pmetric.Metrics {
	r.t.Helper()
	r.now = r.now.Add(10 * time.Second)
	r.Begin()
	for _, row := range rows {
		r.Add(row.Field, row.Labels, row.Value)
	}
	md := r.Emit(pcommon.NewResource(), pcommon.NewTimestampFromTime(r.now))
	scraperstest.RequireSane(r.t, md)
	return md
}

// scrape returns the points of a text by their keys.
func (r *rig) scrape(text string) map[string]float64 {
	r.t.Helper()
	return valuesOf(r.emit(r.series(text + "\n")))
}

func valuesOf(md pmetric.Metrics) map[string]float64 {
	values := map[string]float64{}
	for _, p := range scraperstest.PointsOf(md) {
		values[p.Key()] = p.Value()
	}
	return values
}

// outcome is that of one line.
func (r *rig) outcome(line string) Outcome {
	r.t.Helper()
	rows := r.series(line + "\n")
	require.Len(r.t, rows, 1)
	return r.Add(rows[0].Field, rows[0].Labels, rows[0].Value)
}

const (
	labels = `gpu="3",UUID="GPU-3",device="nvidia3",modelName="NVIDIA H100",hostname="node-a"`
	gpu3   = " gpu_index=3 gpu_model=NVIDIA H100 gpu_uuid=GPU-3 gpu_vendor=nvidia node=node-a"
	mig3   = " gpu_index=3 gpu_model=NVIDIA H100 gpu_vendor=nvidia mig_gi=5 mig_profile=1g.10gb node=node-a"
)

// everyField has all fields of DCGM that mean something here, and three others.
var everyField = map[string]float64{
	"DCGM_FI_DEV_GPU_TEMP": 64, "DCGM_FI_DEV_MEMORY_TEMP": 71, "DCGM_FI_DEV_GPU_MAX_OP_TEMP": 87, "DCGM_FI_DEV_MEM_MAX_OP_TEMP": 95,
	"DCGM_FI_DEV_POWER_USAGE": 350.5, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 701,
	"DCGM_FI_DEV_GPU_UTIL": 51, "DCGM_FI_DEV_MEM_COPY_UTIL": 23, "DCGM_FI_DEV_ENC_UTIL": 4,
	"DCGM_FI_DEV_SM_CLOCK": 1410, "DCGM_FI_DEV_MEM_CLOCK": 2619,
	"DCGM_FI_DEV_FB_USED": 20, "DCGM_FI_DEV_FB_FREE": 50, "DCGM_FI_DEV_FB_TOTAL": 80, "DCGM_FI_DEV_FB_RESERVED": 10,
	"DCGM_FI_DEV_ECC_SBE_VOL_DEV": 7, "DCGM_FI_DEV_ECC_DBE_VOL_DEV": 2, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 812345678901,
	"DCGM_FI_PROF_PCIE_TX_BYTES": 2147483648, "DCGM_FI_PROF_PCIE_RX_BYTES": 67214,
	"DCGM_FI_PROF_NVLINK_TX_BYTES": 300, "DCGM_FI_PROF_NVLINK_RX_BYTES": 400,
	"DCGM_FI_PROF_SM_ACTIVE": 0.75, "DCGM_FI_PROF_SM_OCCUPANCY": 0.5, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.25, "DCGM_FI_PROF_DRAM_ACTIVE": 0.125,
	"DCGM_FI_PROF_PIPE_FP64_ACTIVE": 0, "DCGM_FI_PROF_PIPE_FP32_ACTIVE": 1, "DCGM_FI_PROF_PIPE_FP16_ACTIVE": 0.0625,
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.9, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 99, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 98,
}

// queryTruth is what everyField means in an answer to a query.
var queryTruth = map[string]float64{
	"temp": 64, "memoryTemp": 71, "maxOpTemp": 87, "memoryMaxOpTemp": 95, "powerWatts": 350.5, "gpu": 51, "memory": 23, "smClock": 1410,
	"memoryAllocatedBytes": 20971520, "memoryFree": 52428800, "memoryTotal": 83886080, "totalEnergyConsumption": 812345678901,
	"pcieTxBytes": 2147483648, "pcieRxBytes": 67214, "nvlinkTxBytes": 300, "nvlinkRxBytes": 400,
	"smActive": 75, "smOccupancy": 50, "pipeTensorActive": 25, "pipeFp64Active": 0, "pipeFp32Active": 100, "pipeFp16Active": 6.25,
}

// exporterTruth is what it means beyond that in the exporter's text.
var exporterTruth = map[string]float64{
	"enforcedPowerLimitWatts": 701, "powerPercent": 50, "encoderUtilization": 4, "memoryClock": 2619, "memoryAllocated": 25,
	"correctedMemoryErrors": 7, "unCorrectedMemoryErrors": 2, "dramActive": 12.5,
}

// onByDefault are those that the exporter gives where nothing is configured.
var onByDefault = []string{
	"temp", "powerWatts", "powerPercent", "gpu", "memory", "smClock", "memoryClock", "encoderUtilization", "memoryAllocated",
	"memoryAllocatedBytes", "correctedMemoryErrors", "unCorrectedMemoryErrors",
}

func textOf(values map[string]float64, labels string) string {
	var text strings.Builder
	for field, value := range values {
		fmt.Fprintf(&text, "%s{%s} %v\n", field, labels, value)
	}
	return text.String()
}

func keysOf(truth map[string]float64, prefix, attributes string) map[string]float64 {
	want := map[string]float64{}
	for name, value := range truth {
		want[prefix+name+attributes] = value
	}
	return want
}

func TestEveryFieldOfTheExporter(t *testing.T) {
	want := keysOf(queryTruth, "gpu.", gpu3)
	maps.Copy(want, keysOf(exporterTruth, "gpu.", gpu3))
	assert.Equal(t, want, newRig(t, Exporter, true).scrape(textOf(everyField, labels)))

	byDefault := map[string]float64{}
	for _, name := range onByDefault {
		byDefault["gpu."+name+gpu3] = want["gpu."+name+gpu3]
	}
	assert.Equal(t, byDefault, newRig(t, Exporter, false).scrape(textOf(everyField, labels)))
}

func TestEveryFieldOfTheQueryIsOnByDefault(t *testing.T) {
	want := keysOf(queryTruth, "gpu.", gpu3)
	for _, extended := range []bool{false, true} {
		assert.Equal(t, want, newRig(t, Query, extended).scrape(textOf(everyField, labels)))
	}
}

func TestQueryLeavesOffWhatTheUserTurnedOff(t *testing.T) {
	set, _ := scraperstest.NewSettings(t, t.TempDir(), false)
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"metrics": map[string]any{
		"gpu.smActive": map[string]any{"enabled": false},
		"gpu.temp":     map[string]any{"enabled": false},
	}}).Unmarshal(&set.Metrics))
	r := newRig(t, Query, false)
	r.Mapper = New(set, Query)
	want := keysOf(queryTruth, "gpu.", gpu3)
	delete(want, "gpu.smActive"+gpu3)
	delete(want, "gpu.temp"+gpu3)
	assert.Equal(t, want, r.scrape(textOf(everyField, labels)))
	assert.False(t, set.Metrics.Metrics.GpuSmOccupancy.Enabled, "what others get is not changed")
}

// The types and units are those of metadata.yaml.
func TestPointsAreOfTheScopeOfDCGM(t *testing.T) {
	md := newRig(t, Exporter, true).emitText(textOf(everyField, labels))
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			assert.Equal(t, map[string]any{naming.ScopeSource: naming.SourceDCGM}, sm.Scope().Attributes().AsRaw())
			assert.Equal(t, metadata.ScopeName, sm.Scope().Name())
		}
	}
}

func (r *rig) emitText(text string) pmetric.Metrics {
	r.t.Helper()
	return r.emit(r.series(text))
}

func TestPointsAreOnTheResource(t *testing.T) {
	r := newRig(t, Exporter, false)
	resource := pcommon.NewResource()
	resource.Attributes().PutStr("service.name", "dcgm")
	r.Begin()
	assert.Equal(t, Mapped, r.outcome(`DCGM_FI_DEV_GPU_TEMP{gpu="0"} 33`))
	md := r.Emit(resource, 1)
	require.Equal(t, 1, md.ResourceMetrics().Len())
	assert.Equal(t, resource.Attributes().AsRaw(), md.ResourceMetrics().At(0).Resource().Attributes().AsRaw())
	r.Begin()
	assert.Zero(t, r.Emit(resource, 2).ResourceMetrics().Len(), "a scrape without series has no points")
}

func TestBlankFiguresAreNone(t *testing.T) {
	for text, blank := range map[string]bool{
		"9223372036854775791": true, // no float64 but 2^63 is that near
		"9223372036854775792": true, "9223372036854775793": true, "9223372036854775794": true, "9223372036854775795": true,
		"9223372036854774784": false, // the float64 below
		"2147483631":          false,
		"2147483632":          true, "2147483633": true, "2147483634": true, "2147483635": true,
		"2147483636": false, "2147483647": false, "2147483648": false,
		"140737488355327": false,
		"140737488355328": true, "140737488355329": true, "140737488355330": true, "140737488355331": true,
		"140737488355332": false, "140737488355328.000000": true,
		"NaN": true, "+Inf": true, "-Inf": true, "0": false, "1": false,
	} {
		r := newRig(t, Exporter, true)
		values := r.scrape(`DCGM_FI_PROF_PCIE_TX_BYTES{gpu="0"} ` + text)
		assert.Equal(t, blank, len(values) == 0, text)
		assert.Equal(t, Mapped, r.outcome(`DCGM_FI_PROF_PCIE_TX_BYTES{gpu="0"} `+text), text)
		other, foreign := r.outcome(`DCGM_FI_DEV_XID_ERRORS{gpu="0"} `+text), r.outcome(`other{gpu="0"} `+text)
		assert.Equal(t, blank, other == Mapped, "of no field is there anything else to do with %s", text)
		assert.Equal(t, Unmapped, foreign, "what is not DCGM's has no words of it: %s", text)
	}
}

func TestFiguresThatCannotBeAreNone(t *testing.T) {
	for line, want := range map[string]int{
		"DCGM_FI_DEV_GPU_UTIL{%s} 100": 1, "DCGM_FI_DEV_GPU_UTIL{%s} 101": 0, "DCGM_FI_DEV_GPU_UTIL{%s} -1": 0,
		"DCGM_FI_DEV_MEM_COPY_UTIL{%s} 101": 0, "DCGM_FI_DEV_ENC_UTIL{%s} 101": 0,
		"DCGM_FI_DEV_GPU_TEMP{%s} 200": 1, "DCGM_FI_DEV_GPU_TEMP{%s} 201": 0, "DCGM_FI_DEV_MEMORY_TEMP{%s} 0": 1,
		"DCGM_FI_DEV_POWER_USAGE{%s} 9999.9": 1, "DCGM_FI_DEV_POWER_USAGE{%s} 10000": 0, "DCGM_FI_DEV_POWER_USAGE{%s} 0": 1,
		"DCGM_FI_DEV_ENFORCED_POWER_LIMIT{%s} 0": 0, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT{%s} 10000": 0, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT{%s} 1": 1,
		"DCGM_FI_PROF_SM_ACTIVE{%s} 1e308": 0, "DCGM_FI_PROF_SM_ACTIVE{%s} 1.01": 1,
		"DCGM_FI_DEV_FB_USED{%s} 1e300": 0, "DCGM_FI_DEV_FB_FREE{%s} 1e300": 0, "DCGM_FI_DEV_SM_CLOCK{%s} 1e300": 0,
	} {
		line = fmt.Sprintf(line, labels)
		r := newRig(t, Exporter, true)
		assert.Len(t, r.scrape(line), want, line)
		assert.Equal(t, Mapped, r.outcome(line), line)
	}
	r := newRig(t, Exporter, true)
	assert.Len(t, r.scrape(`DCGM_FI_DEV_POWER_USAGE{gpu="0"} 70`+"\n"+`DCGM_FI_DEV_ENFORCED_POWER_LIMIT{gpu="0"} 5e-324`), 2, "no percentage of next to nothing")
	assert.Equal(t, map[string]float64{"gpu.smClock gpu_index=0 gpu_vendor=nvidia": 1411}, r.scrape(`DCGM_FI_DEV_SM_CLOCK{gpu="0"} 1410.5`), "a mean of clocks is rounded")
}

func TestWhichGPUASeriesIsOf(t *testing.T) {
	for given, want := range map[string]string{
		`gpu="0"`:                          "gpu_index=0 gpu_vendor=nvidia",
		`gpu="0",device="nvidia7"`:         "gpu_index=0 gpu_vendor=nvidia",
		`gpu="",device="nvidia7"`:          "gpu_index=7 gpu_vendor=nvidia",
		`device="nvidia12"`:                "gpu_index=12 gpu_vendor=nvidia",
		`device="12"`:                      "gpu_index=12 gpu_vendor=nvidia",
		`gpu="0", UUID="GPU-1"`:            "gpu_index=0 gpu_uuid=GPU-1 gpu_vendor=nvidia",
		`gpu="0",uuid="GPU-1"`:             "gpu_index=0 gpu_uuid=GPU-1 gpu_vendor=nvidia",
		`gpu="0",gpu_uuid="GPU-1"`:         "gpu_index=0 gpu_uuid=GPU-1 gpu_vendor=nvidia",
		`gpu="0",UUID="a",uuid="b"`:        "gpu_index=0 gpu_uuid=a gpu_vendor=nvidia",
		`gpu="0",UUID="",uuid="b"`:         "gpu_index=0 gpu_uuid=b gpu_vendor=nvidia",
		`gpu="0",modelName="H100"`:         "gpu_index=0 gpu_model=H100 gpu_vendor=nvidia",
		`gpu="0",model_name="H100"`:        "gpu_index=0 gpu_model=H100 gpu_vendor=nvidia",
		`gpu="0",node="a"`:                 "gpu_index=0 gpu_vendor=nvidia node=a",
		`gpu="0",node="",hostname=""`:      "gpu_index=0 gpu_vendor=nvidia",
		`gpu="0",instance="10.0.0.1:9400"`: "gpu_index=0 gpu_vendor=nvidia node=10.0.0.1:9400",

		`gpu="0",Hostname="c",instance="d"`:                          "gpu_index=0 gpu_vendor=nvidia node=c",
		`gpu="0",hostname="b",Hostname="c",instance="d"`:             "gpu_index=0 gpu_vendor=nvidia node=b",
		`gpu="0",node="a",hostname="b",Hostname="c",instance="d"`:    "gpu_index=0 gpu_vendor=nvidia node=a",
		`gpu="0",GPU_I_ID="",GPU_I_PROFILE="",nvlink="",nvswitch=""`: "gpu_index=0 gpu_vendor=nvidia",
	} {
		for _, source := range []Source{Exporter, Query} {
			r := newRig(t, source, false)
			line := "DCGM_FI_DEV_GPU_TEMP{" + given + "} 33"
			assert.Equal(t, map[string]float64{"gpu.temp " + want: 33}, r.scrape(line), given)
			assert.Equal(t, Mapped, r.outcome(line), given)
		}
	}
}

func TestSeriesOfNoGPUAreUnmapped(t *testing.T) {
	for _, given := range []string{
		`UUID="GPU-0"`, `gpu=""`, `gpu="N/A",device="nvidia0"`, `gpu="-1"`, `gpu="1.0"`, `gpu="0x1"`, `gpu="99999999999"`, `device="mlx5_0"`, `device="nvidia"`,
		`gpu="0",nvlink="3"`, `gpu="0",nvswitch="1"`, `gpu="0",cpu="0"`, `gpu="0",cpucore="0"`, `gpu="0",GPU_I_ID="x"`,
	} {
		for _, source := range []Source{Exporter, Query} {
			r := newRig(t, source, true)
			line := "DCGM_FI_DEV_GPU_TEMP{" + given + "} 33"
			assert.Empty(t, r.scrape(line), given)
			assert.Equal(t, Unmapped, r.outcome(line), given)
		}
	}
}

func TestOutcomes(t *testing.T) {
	for line, want := range map[string]map[Source]Outcome{
		`DCGM_FI_DEV_GPU_TEMP{gpu="0"} 1`:                    {Exporter: Mapped, Query: Mapped},
		`DCGM_FI_DEV_MEM_CLOCK{gpu="0"} 1`:                   {Exporter: Mapped, Query: Unmapped},
		`DCGM_FI_DEV_FB_RESERVED{gpu="0"} 1`:                 {Exporter: Unmapped, Query: Unmapped},
		`DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0"} 1`:           {Exporter: Unmapped, Query: Unmapped},
		`DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{gpu="0"} 1`:           {Exporter: Unmapped, Query: Unmapped},
		`go_goroutines 1`:                                    {Exporter: Unmapped, Query: Unmapped},
		`DCGM_FI_DEV_GPU_TEMP{gpu="0",GPU_I_ID="1"} 1`:       {Exporter: Mapped, Query: Unmapped},
		`DCGM_FI_DEV_FB_USED{gpu="0",GPU_I_ID="1"} 1`:        {Exporter: Mapped, Query: Unmapped},
		`DCGM_FI_DEV_FB_FREE{gpu="0",GPU_I_ID="1"} 1`:        {Exporter: Unmapped, Query: Unmapped},
		`DCGM_FI_DEV_GPU_UTIL{gpu="0",GPU_I_ID="1"} 1`:       {Exporter: Unmapped, Query: Unmapped},
		`DCGM_FI_PROF_PCIE_TX_BYTES{gpu="0",GPU_I_ID="1"} 1`: {Exporter: Unmapped, Query: Unmapped},
	} {
		for source, outcome := range want {
			assert.Equal(t, outcome, newRig(t, source, false).outcome(line), "%s %d", line, source)
		}
	}
}

// memoryOf are the points of the memory, by their short names, in MiB and percent.
func memoryOf(values map[string]float64) map[string]float64 {
	memory := map[string]float64{}
	for key, value := range values {
		name, attributes, _ := strings.Cut(key, " ")
		if _, gi, ok := strings.Cut(attributes, "mig_gi="); ok {
			name += " " + gi
		}
		if name = strings.TrimPrefix(name, "gpu."); !strings.HasPrefix(strings.TrimPrefix(name, "mig."), "memory") {
			continue
		}
		if !strings.HasSuffix(name, "memoryAllocated") && !strings.Contains(name, "memoryAllocated ") {
			value /= 1 << 20
		}
		memory[name] = value
	}
	return memory
}

// fb makes the rows of the memory: `used@1 20` is that of the instance 1.
func fb(rows ...string) string {
	var text strings.Builder
	for _, row := range rows {
		what, value, _ := strings.Cut(row, " ")
		what, gi, _ := strings.Cut(what, "@")
		fmt.Fprintf(&text, "DCGM_FI_DEV_FB_%s{gpu=\"0\",GPU_I_ID=%q} %s\n", strings.ToUpper(what), gi, value)
	}
	return text.String()
}

const blank = "9223372036854775794"

func TestMemory(t *testing.T) {
	type values = map[string]float64
	for name, c := range map[string]struct {
		text string
		want values
	}{
		"used alone":              {fb("used 20"), values{"memoryAllocatedBytes": 20}},
		"total alone":             {fb("total 80"), values{"memoryTotal": 80}},
		"used and free":           {fb("used 20", "free 60"), values{"memoryAllocatedBytes": 20, "memoryFree": 60, "memoryTotal": 80, "memoryAllocated": 25}},
		"with what is reserved":   {fb("used 20", "free 50", "reserved 10"), values{"memoryAllocatedBytes": 20, "memoryFree": 50, "memoryTotal": 80, "memoryAllocated": 25}},
		"reserved is blank":       {fb("used 20", "free 60", "reserved "+blank), values{"memoryAllocatedBytes": 20, "memoryFree": 60, "memoryTotal": 80, "memoryAllocated": 25}},
		"free is blank":           {fb("used 20", "free "+blank, "reserved 10"), values{"memoryAllocatedBytes": 20}},
		"total goes first":        {fb("used 20", "free 1", "reserved 1", "total 80"), values{"memoryAllocatedBytes": 20, "memoryFree": 1, "memoryTotal": 80, "memoryAllocated": 25}},
		"total is blank":          {fb("used 20", "free 60", "total "+blank), values{"memoryAllocatedBytes": 20, "memoryFree": 60, "memoryTotal": 80, "memoryAllocated": 25}},
		"total is 0":              {fb("used 0", "total 0"), values{}},
		"more used than there is": {fb("used 81", "total 80"), values{}},
		"nothing used":            {fb("used 0", "free 80"), values{"memoryAllocatedBytes": 0, "memoryFree": 80, "memoryTotal": 80, "memoryAllocated": 0}},

		"instances": {
			fb("used@1 20", "free@1 20", "used@2 5", "free@2 5", "reserved@2 10"),
			values{"memoryAllocatedBytes": 25, "mig.memoryAllocatedBytes 1": 20, "mig.memoryTotal 1": 40, "mig.memoryAllocated 1": 50, "mig.memoryAllocatedBytes 2": 5, "mig.memoryTotal 2": 20, "mig.memoryAllocated 2": 25},
		},
		"an instance with a total": {fb("used@1 20", "total@1 80"), values{"memoryAllocatedBytes": 20, "mig.memoryAllocatedBytes 1": 20, "mig.memoryTotal 1": 80, "mig.memoryAllocated 1": 25}},
		"one instance is blank":    {fb("used@1 20", "used@2 "+blank), values{"mig.memoryAllocatedBytes 1": 20}},
		"one instance does not tell": {
			fb("used@1 20") + `DCGM_FI_DEV_GPU_TEMP{gpu="0",GPU_I_ID="2"} 33`, values{"mig.memoryAllocatedBytes 1": 20},
		},
		"the board's own row goes first": {fb("used 30", "used@1 20", "used@2 5"), values{"memoryAllocatedBytes": 30, "mig.memoryAllocatedBytes 1": 20, "mig.memoryAllocatedBytes 2": 5}},
		"the board's total beside instances": {fb("used@1 20", "used@2 10", "total 120"), values{
			"memoryAllocatedBytes": 30, "memoryTotal": 120, "memoryAllocated": 25, "mig.memoryAllocatedBytes 1": 20, "mig.memoryAllocatedBytes 2": 10,
		}},
		"the board's free memory is no total": {fb("used@1 20", "free 60"), values{"memoryAllocatedBytes": 20, "memoryFree": 60, "mig.memoryAllocatedBytes 1": 20}},
		"a pod per row, with an instance":     {fb("used@1 20") + `DCGM_FI_DEV_FB_USED{gpu="0",GPU_I_ID="1",pod="a"} 20`, values{"memoryAllocatedBytes": 20, "mig.memoryAllocatedBytes 1": 20}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, memoryOf(newRig(t, Exporter, true).scrape(c.text)))
		})
	}
	r := newRig(t, Query, true)
	assert.Equal(t, values{"memoryAllocatedBytes": 20, "memoryFree": 60}, memoryOf(r.scrape(fb("used 20", "free 60", "reserved 1", "used@1 5", "used@2 6"))), "a query adds nothing up")
	assert.Equal(t, values{"memoryAllocatedBytes": 20, "memoryTotal": 80}, memoryOf(r.scrape(fb("used 20", "total 80"))))
}

func TestInstances(t *testing.T) {
	of := func(gi, profile string) string {
		return fmt.Sprintf("%s,GPU_I_ID=%q,GPU_I_PROFILE=%q", labels, gi, profile)
	}
	got := newRig(t, Exporter, true).scrape(textOf(everyField, of("5", "1g.10gb")) + `DCGM_FI_DEV_GPU_TEMP{` + of("6", "2g.20gb") + `} 64`)
	want := keysOf(map[string]float64{
		"memoryAllocated": 25, "memoryAllocatedBytes": 20971520, "memoryTotal": 83886080,
		"smActive": 75, "smOccupancy": 50, "pipeTensorActive": 25, "dramActive": 12.5, "pipeFp64Active": 0, "pipeFp32Active": 100, "pipeFp16Active": 6.25,
	}, "gpu.mig.", mig3)
	maps.Copy(want, keysOf(map[string]float64{
		"temp": 64, "memoryTemp": 71, "maxOpTemp": 87, "memoryMaxOpTemp": 95, "powerWatts": 350.5, "enforcedPowerLimitWatts": 701, "powerPercent": 50,
		"smClock": 1410, "memoryClock": 2619, "correctedMemoryErrors": 7, "unCorrectedMemoryErrors": 2, "totalEnergyConsumption": 812345678901,
	}, "gpu.", gpu3))
	assert.Equal(t, want, got, "the board's once, and what it has no sum of not at all")
}

func TestRowsOfPodsAreOneGPU(t *testing.T) {
	var text strings.Builder
	for _, pod := range []string{"", "a", "b"} {
		text.WriteString(textOf(everyField, labels+fmt.Sprintf(",pod=%q", pod)))
	}
	for _, source := range []Source{Exporter, Query} {
		want := newRig(t, source, true).scrape(textOf(everyField, labels))
		assert.Equal(t, want, newRig(t, source, true).scrape(text.String()))
	}
	assert.Equal(t, map[string]float64{"gpu.temp gpu_index=0 gpu_vendor=nvidia": 34},
		newRig(t, Exporter, false).scrape("DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",pod=\"a\"} 33\nDCGM_FI_DEV_GPU_TEMP{gpu=\"0\",pod=\"b\"} 34\nDCGM_FI_DEV_GPU_TEMP{gpu=\"0\",pod=\"c\"} "+blank))
}

func TestGPUsOfSeveralHosts(t *testing.T) {
	got := newRig(t, Query, false).scrape(`DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="a"} 33
DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="b"} 34
DCGM_FI_DEV_GPU_TEMP{gpu="1",Hostname="b"} 35`)
	assert.Equal(t, map[string]float64{
		"gpu.temp gpu_index=0 gpu_vendor=nvidia node=a": 33,
		"gpu.temp gpu_index=0 gpu_vendor=nvidia node=b": 34,
		"gpu.temp gpu_index=1 gpu_vendor=nvidia node=b": 35,
	}, got)
}

func TestOrderDoesNotMatter(t *testing.T) {
	var text strings.Builder
	for gpu := range 3 {
		text.WriteString(textOf(everyField, fmt.Sprintf("gpu=\"%d\",Hostname=\"a\",UUID=\"GPU-%d\"", gpu, gpu)))
		for gi := range gpu {
			text.WriteString(textOf(everyField, fmt.Sprintf("gpu=\"%d\",Hostname=\"a\",GPU_I_ID=\"%d\",GPU_I_PROFILE=\"1g\",pod=\"%d\"", gpu, gi, gi)))
		}
		text.WriteString(textOf(map[string]float64{"DCGM_FI_DEV_GPU_TEMP": 70, "DCGM_FI_DEV_FB_USED": 25}, fmt.Sprintf("gpu=\"%d\",Hostname=\"a\",pod=\"x\",modelName=\"M\"", gpu)))
	}
	for _, source := range []Source{Exporter, Query} {
		r := newRig(t, source, true)
		rows := r.series(text.String())
		want := valuesOf(r.emit(rows))
		random := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			assert.Equal(t, want, valuesOf(r.emit(rows)))
		}
	}
}

// starts are those of a counter's points, in seconds since the first scrape, by
// the attribute that tells the GPUs apart.
func (r *rig) starts(text, attribute string) map[string]int {
	r.t.Helper()
	starts := map[string]int{}
	for _, p := range scraperstest.PointsOf(r.emitText(text)) {
		if p.Metric.Type() == pmetric.MetricTypeSum {
			start := p.Data.StartTimestamp().AsTime().Sub(time.Unix(1_800_000_010, 0))
			starts[fmt.Sprint(p.Attributes[attribute])] = int(start.Seconds())
		}
	}
	return starts
}

func energy(value float64, labels string) string {
	return textOf(map[string]float64{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": value}, labels)
}

func TestCountersBegin(t *testing.T) {
	r := newRig(t, Exporter, true)
	of := func(value float64) map[string]int { return r.starts(energy(value, `gpu="0"`), "gpu_index") }
	at := func(seconds int) map[string]int { return map[string]int{"0": seconds} }
	assert.Equal(t, at(0), of(5))
	assert.Equal(t, at(0), of(7))
	assert.Equal(t, at(10), of(6), "it fell: after the last reading")
	assert.Equal(t, at(10), of(6))
	assert.Empty(t, r.starts(energy(1, `gpu="9",nvlink="1"`), "gpu_index"))
	assert.Equal(t, at(10), of(8), "a scrape without it changes nothing")
	r.now = r.now.Add(keep + time.Second)
	assert.Empty(t, r.starts("other 1\n", "gpu_index"))
	assert.Equal(t, at(3671), of(9), "it was not seen for long")
}

func TestCountersFollowTheUUID(t *testing.T) {
	r := newRig(t, Exporter, true)
	of := func(first, second float64, a, b string) map[string]int {
		return r.starts(energy(first, `gpu="0",UUID="`+a+`"`)+energy(second, `gpu="1",UUID="`+b+`"`), "gpu_uuid")
	}
	assert.Equal(t, map[string]int{"A": 0, "B": 0}, of(100, 5, "A", "B"))
	assert.Equal(t, map[string]int{"A": 0, "B": 0}, of(6, 101, "B", "A"), "they swapped places")
	assert.Equal(t, map[string]int{"A": 0, "C": 20}, of(1, 102, "C", "A"), "another GPU came")
	assert.Len(t, r.devices, 2)
}

func TestHostsCountApart(t *testing.T) {
	r := newRig(t, Query, false)
	rows := func(a, b float64) string {
		return energy(a, `gpu="0",UUID="GPU-0",node="a"`) + energy(b, `gpu="0",UUID="GPU-0",node="b"`)
	}
	assert.Equal(t, map[string]int{"a": 0, "b": 0}, r.starts(rows(100, 5), "node"))
	assert.Equal(t, map[string]int{"a": 0, "b": 0}, r.starts(rows(101, 6), "node"))
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	r := newRig(t, Exporter, true)
	for scrape := range 4 {
		var text strings.Builder
		for gpu := range maxDevices {
			fmt.Fprintf(&text, "DCGM_FI_DEV_ECC_SBE_VOL_DEV{gpu=\"%d\"} 1\n", scrape*maxDevices+gpu)
		}
		r.emitText(text.String())
		assert.LessOrEqual(t, len(r.devices), maxDevices)
	}
}

func TestNVMLGoesFirst(t *testing.T) {
	for name, c := range map[string]struct {
		measured *gpus.Measured
		labels   string
		want     Outcome
	}{
		"nothing is measured": {nil, `UUID="GPU-0"`, Mapped},
		"the GPU is measured": {told("GPU-0"), `UUID="GPU-0"`, Elsewhere},
		"by its other label":  {told("GPU-0"), `uuid="GPU-0"`, Elsewhere},
		"another is":          {told("GPU-1"), `UUID="GPU-0",hostname="sample"`, Mapped},
		"no GPU was found":    {told(), `UUID="GPU-0"`, Mapped},
		"no one told yet":     {expecting(), `UUID="GPU-0",hostname="other"`, Elsewhere},

		"without a UUID on this machine": {told("GPU-0"), `hostname="sample"`, Elsewhere},
		"without a UUID on another":      {told("GPU-0"), `hostname="other"`, Mapped},
		"without a UUID, no GPU found":   {told(), `hostname="sample"`, Mapped},
		"without UUID and machine":       {told("GPU-0"), `pod="a"`, Elsewhere},
		"an instance of a measured one":  {told("GPU-0"), `UUID="GPU-0",GPU_I_ID="1"`, Elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Exporter, true)
			r.measured = c.measured
			text := textOf(map[string]float64{"DCGM_FI_DEV_GPU_TEMP": 33}, `gpu="0",`+c.labels)
			assert.Equal(t, c.want == Mapped, len(r.scrape(text)) > 0)
			r.Begin()
			assert.Equal(t, c.want, r.outcome(text))
			assert.Equal(t, Mapped, r.outcome(textOf(map[string]float64{"DCGM_FI_DEV_GPU_TEMP": math.NaN()}, `gpu="0",`+c.labels)), "what is blank is nowhere")
		})
	}
}

func told(uuids ...string) *gpus.Measured {
	var m gpus.Measured
	m.Set("nvidia", uuids)
	return &m
}

func expecting() *gpus.Measured {
	var m gpus.Measured
	m.Expect("nvidia")
	return &m
}

// Labels are parts of the body that they came in, which is not kept for their sake.
func TestNothingOfTheBodyIsKept(t *testing.T) {
	r := newRig(t, Exporter, true)
	r.measured = told("GPU-0")
	given := exposition.Labels{
		{Name: "GPU_I_ID", Value: "1"},
		{Name: "GPU_I_PROFILE", Value: "1g"},
		{Name: "UUID", Value: "GPU-0"},
		{Name: "gpu", Value: "0"},
		{Name: "modelName", Value: "H100"},
		{Name: "node", Value: "a"},
	}
	for _, uuid := range []string{"GPU-0", "GPU-1", "GPU-1"} {
		body := strings.Clone("a" + uuid)
		given[2].Value, given[5].Value = body[1:], body[:1]
		r.emit([]Row{{"DCGM_FI_DEV_GPU_TEMP", given, 33}})
		require.NotEmpty(t, r.devices)
		for _, d := range r.devices {
			for _, kept := range []string{d.node, d.told.uuid, d.described.uuid, d.askedUUID} {
				assert.False(t, kept != "" && within(kept, body), "%q", kept)
			}
		}
	}
}

// within tells whether a text is a part of another's memory.
func within(part, whole string) bool {
	start, at := uintptr(unsafe.Pointer(unsafe.StringData(whole))), uintptr(unsafe.Pointer(unsafe.StringData(part)))
	return at >= start && at < start+uintptr(len(whole))
}

// A GPU is here or elsewhere for a whole scrape, whatever NVML finds meanwhile.
func TestGPUIsNotSplitWithinAScrape(t *testing.T) {
	r := newRig(t, Exporter, true)
	r.measured = told()
	r.Begin()
	assert.Equal(t, Mapped, r.outcome(`DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-0"} 33`))
	r.measured.Set("nvidia", []string{"GPU-0"})
	assert.Equal(t, Mapped, r.outcome(`DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-0"} 33`))
	r.Begin()
	assert.Equal(t, Elsewhere, r.outcome(`DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-0"} 33`))
}

func TestTagsOfTheQueryInSDKNaming(t *testing.T) {
	md := newRig(t, Query, false).emitText(`DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="node-a"} 33
DCGM_FI_DEV_GPU_TEMP{gpu="0",hostname="node-b"} 35
DCGM_FI_DEV_FB_USED{device="nvidia3",node="node-c"} 1024
`)
	naming.New(naming.SDK, "rank").Expand(md)
	got := map[string]float64{}
	for _, p := range scraperstest.PointsOf(md) {
		got[p.Metric.Name()] = p.Value()
	}
	assert.Equal(t, map[string]float64{
		"gpu.0.temp/l:node-a/l:rank": 33, "gpu.0.temp/l:node-b/l:rank": 35, "gpu.3.memoryUsed/l:node-c/l:rank": 1073741824,
	}, got)
}

// Whatever an endpoint serves makes sane points, in both sources.
func FuzzMapper(f *testing.F) {
	f.Add(textOf(everyField, labels), textOf(everyField, labels+`,GPU_I_ID="1"`))
	f.Add(fb("used 20", "free 1e300", "total@1 5"), energy(5, `gpu="0"`)+energy(4, `gpu="0",pod="a"`))
	f.Add("DCGM_FI_DEV_POWER_USAGE{gpu=\"0\"} 70\nDCGM_FI_DEV_ENFORCED_POWER_LIMIT{gpu=\"0\"} 5e-324\n", "")
	f.Fuzz(func(t *testing.T, first, second string) {
		for _, source := range []Source{Exporter, Query} {
			r := newRig(t, source, true)
			for _, text := range []string{first, second, first} {
				scrape, err := r.parser.Parse([]byte(text), "text/plain", nil)
				if err != nil {
					continue
				}
				var rows []Row
				for _, family := range scrape.Families {
					for _, s := range family.Samples {
						rows = append(rows, Row{family.Name, s.Labels, s.Value})
					}
				}
				want := valuesOf(r.emit(rows))
				for i := range rows[:len(rows)/2] {
					rows[i], rows[len(rows)-1-i] = rows[len(rows)-1-i], rows[i]
				}
				for key, value := range valuesOf(r.emit(rows)) {
					if !strings.Contains(key, "gpu_uuid") && !strings.Contains(key, "gpu_model") && !strings.Contains(key, "mig_profile") {
						require.InDelta(t, want[key], value, 0, key)
					}
				}
			}
		}
	})
}

func BenchmarkMapper(b *testing.B) {
	for name, source := range map[string]Source{"exporter": Exporter, "query": Query} {
		b.Run(name, func(b *testing.B) {
			set, _ := scraperstest.NewSettings(b, b.TempDir(), true)
			set.GPUs = told("GPU-x")
			m := New(set, source)
			var rows []Row
			for gpu := range 8 {
				series := exposition.Labels{
					{Name: "DCGM_FI_DRIVER_VERSION", Value: "570.124.06"},
					{Name: "UUID", Value: fmt.Sprint("GPU-00000000-0000-4000-8000-", gpu)},
					{Name: "container", Value: "train"},
					{Name: "device", Value: fmt.Sprint("nvidia", gpu)},
					{Name: "gpu", Value: strconv.Itoa(gpu)},
					{Name: "hostname", Value: "node-a"},
					{Name: "modelName", Value: "NVIDIA H100 80GB HBM3"},
					{Name: "namespace", Value: "team"},
					{Name: "pci_bus_id", Value: "00000000:1B:00.0"},
					{Name: "pod", Value: "job-0"},
				}
				for i := range 40 {
					name := fmt.Sprint("DCGM_FI_DEV_OTHER_", i)
					if i < len(fields) {
						name = fields[i].name
					}
					rows = append(rows, Row{name, series, 0.5})
				}
			}
			now := pcommon.NewTimestampFromTime(time.Unix(1_800_000_000, 0))
			resource := pcommon.NewResource()
			b.ReportAllocs()
			for b.Loop() {
				m.Begin()
				for i := range rows {
					m.Add(rows[i].Field, rows[i].Labels, rows[i].Value)
				}
				m.Emit(resource, now)
			}
		})
	}
}
