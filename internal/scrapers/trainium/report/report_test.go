// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// withReport is a line with a runtime that has this report.
func withReport(text string) string {
	return `{"neuron_runtime_data":[{"pid":7,"neuron_runtime_tag":"job","error":"","report":` + text + `}]}`
}

// one parses a line with one runtime.
func one(t testing.TB, line string) (Runtime, []string) {
	t.Helper()
	r, err := Parse([]byte(line))
	require.NoError(t, err)
	require.Len(t, r.Runtimes, 1)
	return r.Runtimes[0], r.Troubles
}

func TestLinesThatAreNoReports(t *testing.T) {
	for _, line := range []string{
		"", " ", "x", "null", "7", `"neuron_runtime_data"`, "[]", "{}", `[{"neuron_runtime_data":[]}]`,
		`{"level":"info"}`, `{"neuron_runtime_data":{}}`, `{"neuron_runtime_data":"x"}`, `{"neuron_runtime_data":[]`,
		`{"neuron_runtime_data":[]}{"neuron_runtime_data":[]}`, `{"neuron_runtime_data":[],}`, "\x00",
		`{"neuron_runtime_data":[],"neuron_runtime_data":[]}`, `{"neuron_runtime_data":[],"x":{"a":1,"a":2}}`,
	} {
		r, err := Parse([]byte(line))
		require.ErrorIs(t, err, ErrNoReport, line)
		assert.Nil(t, r, line)
	}
}

func TestReportsWithoutRuntimes(t *testing.T) {
	for _, line := range []string{
		`{"neuron_runtime_data":[]}`, `{"neuron_runtime_data":null}`, " {\"neuron_runtime_data\": [ ] }\r",
		`{"neuron_runtime_data":null,"system_data":null,"neuron_hardware_info":null}`,
		`{"neuron_runtime_data":[],"system_data":7,"neuron_hardware_info":"x"}`,
	} {
		r, err := Parse([]byte(line))
		require.NoError(t, err, line)
		assert.Empty(t, r.Runtimes, line)
		assert.Empty(t, r.Devices, line)
		assert.Empty(t, r.Troubles, line)
		assert.Empty(t, r.HardwareError, line)
	}
}

func TestWholeRuntime(t *testing.T) {
	got, troubles := one(t, withReport(`{
		"neuroncore_counters":{"period":1.0006,"neuroncores_in_use":{"0":{"neuroncore_utilization":42.5,"flops":1,"v3d":{"nc_v3.0":{"neuroncore_utilization":1}}},"10":{"neuroncore_utilization":0},"2":{"neuroncore_utilization":100.5}},"error":""},
		"memory_used":{"period":1.0,"neuron_runtime_used_bytes":{"host":1000,"neuron_device":2e3,"usage_breakdown":{"host":{"tensors":1,"dma_rings":2},"neuroncore_memory_usage":{"0":{"tensors":3,"new_part":4},"10":{}}}},"loaded_models":[{"name":"/private"}],"error":""},
		"execution_stats":{"period":1.0,"error_summary":{"generic":1},"execution_summary":{"completed":9},"latency_stats":{"total_latency":{"p50":0.5},"device_latency":null},"error":""},
		"neuron_runtime_vcpu_usage":{"error":"open /proc/7/stat: no such file"}}`))
	assert.Empty(t, troubles, "what was not asked for is not told")
	assert.Equal(t, Runtime{
		Key:         Key{7, "job"},
		Utilisation: map[int]float64{0: 42.5, 10: 0, 2: 100},
		Host:        optional.Some(1000.0), Device: optional.Some(2000.0),
		HostParts: map[string]float64{"tensors": 1, "dma_rings": 2},
		CoreParts: map[int]map[string]float64{0: {"tensors": 3, "new_part": 4}, 10: {}},
		Execution: &Execution{
			Errors: map[string]float64{"generic": 1}, Outcomes: map[string]float64{"completed": 9},
			Total: map[string]float64{"p50": 0.5}, Device: map[string]float64{},
		},
	}, got)
}

func TestWhatIsNoNumberIsAbsent(t *testing.T) {
	const absent = "absent"
	for text, want := range map[string]any{
		"0": 0.0, "-0": 0.0, "-0.0": 0.0, "-0e5": 0.0, "7": 7.0, "7.5": 7.5, "1e3": 1000.0, "9007199254740993": 9007199254740992.0,
		"-1": absent, "-0.5": absent, "null": absent, `"7"`: absent, "true": absent, "[7]": absent, `{"a":7}`: absent,
		"1e400": absent, "1e30": absent,
	} {
		line := fmt.Sprintf(`{"memory_used":{"neuron_runtime_used_bytes":{"host":%s,"neuron_device":5,"usage_breakdown":{"host":{"tensors":%[1]s,"constants":6},`+
			`"neuroncore_memory_usage":{"3":{"tensors":%[1]s}}}}},"neuroncore_counters":{"neuroncores_in_use":{"0":{"neuroncore_utilization":%[1]s}}}}`, text)
		got, _ := one(t, withReport(line))
		assert.Equal(t, optional.Some(5.0), got.Device, text)
		assert.InDelta(t, 6, got.HostParts["constants"], 0, text)
		inCore, hasCore := got.CoreParts[3]["tensors"]
		inHost, hasHost := got.HostParts["tensors"]
		percent, hasPercent := got.Utilisation[0]
		if want == absent {
			assert.False(t, got.Host.Known || hasCore || hasHost || hasPercent, text)
			continue
		}
		assert.Equal(t, optional.Some(want.(float64)), got.Host, text)
		assert.InDelta(t, want, inHost, 0, text)
		assert.InDelta(t, want, inCore, 0, text)
		assert.InDelta(t, min(want.(float64), 100), percent, 0, text)
	}
}

func TestSectionsOfAnotherTypeAreMissing(t *testing.T) {
	for _, text := range []string{"null", "7", `"x"`, "[]", "true"} {
		for _, form := range []string{
			`{"neuroncore_counters":%s}`,
			`{"neuroncore_counters":{"neuroncores_in_use":%s}}`, `{"neuroncore_counters":{"neuroncores_in_use":{"0":%s}}}`,
			`{"memory_used":{"neuron_runtime_used_bytes":%s}}`, `{"memory_used":{"neuron_runtime_used_bytes":{"usage_breakdown":%s}}}`,
			`{"memory_used":{"neuron_runtime_used_bytes":{"usage_breakdown":{"host":%s,"neuroncore_memory_usage":%[1]s}}}}`,
			`{"memory_used":{"neuron_runtime_used_bytes":{"usage_breakdown":{"neuroncore_memory_usage":{"0":%s}}}}}`,
			`{"execution_stats":%s}`, `{"execution_stats":{"error_summary":%s,"execution_summary":%[1]s,"latency_stats":%[1]s}}`,
		} {
			got, troubles := one(t, withReport(fmt.Sprintf(form, text)))
			assert.Empty(t, got.Utilisation, form)
			assert.False(t, got.Host.Known, form)
			assert.Empty(t, got.HostParts, form)
			assert.Empty(t, got.CoreParts[0], form)
			assert.Empty(t, troubles, form)
		}
		got, _ := one(t, withReport(text))
		assert.True(t, got.Unread)
	}
}

func TestCoresAreDecimalNumbers(t *testing.T) {
	for key, want := range map[string]bool{
		"0": true, "7": true, "127": true, "65535": true,
		"65536": false, "": false, "-1": false, "+1": false, "01": false, "00": false, "1.0": false, "1 x": false, "nc_v3.0": false, "x": false,
	} {
		got, _ := one(t, withReport(fmt.Sprintf(`{"neuroncore_counters":{"neuroncores_in_use":{%q:{"neuroncore_utilization":1}}},`+
			`"memory_used":{"neuron_runtime_used_bytes":{"usage_breakdown":{"neuroncore_memory_usage":{%[1]q:{"tensors":1}}}}}}`, key)))
		assert.Len(t, got.Utilisation, map[bool]int{true: 1}[want], key)
		assert.Len(t, got.CoreParts, map[bool]int{true: 1}[want], key)
	}
}

func TestPartsHavePlainNames(t *testing.T) {
	got, _ := one(t, withReport(`{"memory_used":{"neuron_runtime_used_bytes":{"usage_breakdown":{"host":{"ok_2":1,"dma-rings":2,"":1,"a.b":1,"a b":1,"ä":1,"`+
		strings.Repeat("a", 64)+`":1,"`+strings.Repeat("a", 65)+`":1}}}}}`))
	assert.Equal(t, map[string]float64{"ok_2": 1, "dma-rings": 2, strings.Repeat("a", 64): 1}, got.HostParts)
}

func TestUtilisationNeedsAWindow(t *testing.T) {
	for text, want := range map[string]bool{
		`"period":0.0007,`: false, `"period":0.0999,`: false, `"period":0,`: false,
		`"period":0.1,`: true, `"period":5.0008,`: true, "": true, `"period":null,`: true, `"period":"x",`: true,
	} {
		got, troubles := one(t, withReport(`{"neuroncore_counters":{`+text+`"neuroncores_in_use":{"0":{"neuroncore_utilization":0}}},`+
			`"memory_used":{"period":0.0007,"neuron_runtime_used_bytes":{"host":1}}}`))
		assert.Len(t, got.Utilisation, map[bool]int{true: 1}[want], text)
		assert.Equal(t, !want, got.Unread, text)
		assert.True(t, got.Host.Known, "memory is a level")
		assert.Empty(t, troubles)
	}
}

func TestErrorsSkipWhatTheyAreOf(t *testing.T) {
	const groups = `{"neuroncore_counters":{"neuroncores_in_use":{"0":{"neuroncore_utilization":1}},"error":%q},` +
		`"memory_used":{"neuron_runtime_used_bytes":{"host":1},"error":%q},"execution_stats":{"error_summary":{"generic":1},"error":%q}}`
	for name, tt := range map[string]struct {
		errs                   [3]any
		cores, host, execution bool
		want                   []string
	}{
		"none":      {[3]any{"", "", ""}, true, true, true, nil},
		"cores":     {[3]any{"a", "", ""}, false, true, true, []string{"pid 7 (job): neuroncore_counters: a"}},
		"memory":    {[3]any{"", "b", ""}, true, false, true, []string{"pid 7 (job): memory_used: b"}},
		"execution": {[3]any{"", "", "c"}, true, true, false, []string{"pid 7 (job): execution_stats: c"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, troubles := one(t, withReport(fmt.Sprintf(groups, tt.errs[:]...)))
			assert.Equal(t, tt.cores, len(got.Utilisation) > 0)
			assert.Equal(t, !tt.cores, got.Unread)
			assert.Equal(t, tt.host, got.Host.Known)
			assert.Equal(t, tt.execution, got.Execution != nil)
			assert.Equal(t, tt.want, troubles)
		})
	}
	got, troubles := one(t, strings.Replace(withReport(fmt.Sprintf(groups, "", "", "")), `"error":""`, `"error":{"code":3}`, 1))
	assert.Equal(t, Runtime{Key: Key{7, "job"}, Unread: true}, got, "an error of another type is one too")
	assert.Equal(t, []string{`pid 7 (job): {"code":3}`}, troubles)
}

func TestRuntimesAreNamedByPidAndTag(t *testing.T) {
	for text, want := range map[string]string{
		`"pid":7,"neuron_runtime_tag":"7"`:   "pid 7",
		`"pid":7,"neuron_runtime_tag":"a"`:   "pid 7 (a)",
		`"pid":7`:                            "pid 7",
		`"pid":null,"neuron_runtime_tag":""`: "pid 0",
		`"pid":"7"`:                          "pid 0",
		`"pid":1e18`:                         "pid 0",
		`"pid":1.5`:                          "pid 0",
		`"pid":7.0`:                          "pid 7",
		`"pid":7,"neuron_runtime_tag":12`:    "pid 7 (12)",
	} {
		got, _ := one(t, `{"neuron_runtime_data":[{`+text+`}]}`)
		assert.Equal(t, want, got.Key.String(), text)
		assert.True(t, got.Unread)
	}
	got, _ := one(t, `{"neuron_runtime_data":[{"pid":7,"neuron_runtime_tag":"`+strings.Repeat("ä", 200)+`"}]}`)
	assert.Equal(t, strings.Repeat("ä", 127), got.Key.Tag, "whole characters")
}

func TestHardware(t *testing.T) {
	r, err := Parse([]byte(`{"neuron_runtime_data":[],"system_data":{"neuron_hw_counters":{"neuron_devices":[` +
		`{"neuron_device_index":0,"mem_ecc_corrected":1,"mem_ecc_uncorrected":2,"sram_ecc_uncorrected":3,"sram_ecc_corrected":4},` +
		`{"neuron_device_index":3,"mem_ecc_corrected":null,"sram_ecc_corrected":"x"},{"mem_ecc_corrected":9},` +
		`{"neuron_device_index":1e12,"mem_ecc_corrected":9},{"neuron_device_index":65536,"mem_ecc_corrected":9},{"neuron_device_index":0.5,"mem_ecc_corrected":9}],"error":""}},` +
		`"neuron_hardware_info":{"neuron_device_count":16,"neuroncore_per_device_count":2,"error":""}}`))
	require.NoError(t, err)
	assert.Equal(t, map[int]ECC{0: {MemCorrected: 1, MemUncorrected: 2, SRAMUncorrected: 3, SRAMCorrected: 4}, 3: {}}, r.Devices)
	assert.Equal(t, 32, r.Cores)

	r, err = Parse([]byte(`{"neuron_runtime_data":[],"system_data":{"neuron_hw_counters":{"neuron_devices":[{"neuron_device_index":0,"mem_ecc_corrected":1}],"error":"no sysfs"}},` +
		`"neuron_hardware_info":{"neuron_device_count":1e9,"neuroncore_per_device_count":1e9,"error":"no driver"}}`))
	require.NoError(t, err)
	assert.Empty(t, r.Devices)
	assert.Equal(t, []string{"neuron_hw_counters: no sysfs"}, r.Troubles)
	assert.Equal(t, "no driver", r.HardwareError)
	assert.Zero(t, r.Cores)
}

func TestMoreThanAnyMachineHasIsNotRead(t *testing.T) {
	var names strings.Builder
	for i := range 2 * maxNames {
		fmt.Fprintf(&names, `"part%d":1,`, i)
	}
	runtime := strings.TrimSuffix(strings.TrimPrefix(withReport(`{"memory_used":{"neuron_runtime_used_bytes":{"host":1,"usage_breakdown":{"host":{`+
		names.String()+`"last":1}}}}}`), `{"neuron_runtime_data":[`), `]}`)
	r, err := Parse([]byte(`{"neuron_runtime_data":[` + runtime + strings.Repeat(`,{}`, 2*maxRuntimes) + `]}`))
	require.NoError(t, err)
	assert.Len(t, r.Runtimes, maxRuntimes)
	assert.Len(t, r.Runtimes[0].HostParts, maxNames)
	assert.Equal(t, []string{"4097 runtimes more than the 4096 that are read"}, r.Troubles)
}

// Whatever a line is, it is either no report or has figures that can be emitted, those
// that encoding/json finds.
func FuzzParse(f *testing.F) {
	f.Add([]byte(withReport(`{"neuroncore_counters":{"period":1,"neuroncores_in_use":{"0":{"neuroncore_utilization":42.5}},"error":""},` +
		`"memory_used":{"neuron_runtime_used_bytes":{"host":1,"neuron_device":2,"usage_breakdown":{"host":{"tensors":1},"neuroncore_memory_usage":{"0":{"tensors":3}}}}},` +
		`"execution_stats":{"error_summary":{"generic":1},"execution_summary":{"completed":9},"latency_stats":{"total_latency":{"p50":0.5},"device_latency":null}}}`)))
	f.Add([]byte(`{"neuron_runtime_data":null,"system_data":{"neuron_hw_counters":{"neuron_devices":[{"neuron_device_index":0,"mem_ecc_corrected":1}]}},"neuron_hardware_info":{"error":"x","neuron_device_count":2,"neuroncore_per_device_count":4}}`))
	f.Add([]byte(`{"neuron_runtime_data":[{"pid":-1,"neuron_runtime_tag":["a"],"error":{},"report":{}}, 7, null]}`))
	f.Add([]byte(`{"neuron_runtime_data":[],"neuron_runtime_data":{}}`))
	f.Add([]byte(`{"neuron_runtime_data":[{"report":{"neuroncore_counters":{"neuroncores_in_use":{"00":{"neuroncore_utilization":-0}}}}}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := Parse(line)
		if !utf8.Valid(line) {
			return
		}
		require.Equal(t, isReport(line), err == nil, err)
		if err != nil {
			require.ErrorIs(t, err, ErrNoReport)
			return
		}
		if len(line) <= maxRuntimes { // in longer ones there may be too many
			requireLike(t, line, r)
		}
		require.LessOrEqual(t, len(r.Runtimes), len(line))
		require.LessOrEqual(t, r.Cores, maxIndex)
		for i := range r.Runtimes {
			requireSane(t, &r.Runtimes[i])
		}
		for number, ecc := range r.Devices {
			require.GreaterOrEqual(t, number, 0)
			requireFigures(t, ecc)
		}
	})
}

func requireSane(t *testing.T, r *Runtime) {
	t.Helper()
	require.GreaterOrEqual(t, r.Key.Pid, 0)
	require.LessOrEqual(t, len(r.Key.Tag), maxText)
	for core, percent := range r.Utilisation {
		requireCore(t, core)
		require.True(t, percent >= 0 && percent <= 100)
	}
	requireFigures(t, map[string]float64{"host": r.Host.Value, "device": r.Device.Value})
	requireParts(t, r.HostParts)
	for core, parts := range r.CoreParts {
		requireCore(t, core)
		requireParts(t, parts)
	}
	if e := r.Execution; e != nil {
		for _, all := range []map[string]float64{e.Errors, e.Outcomes, e.Total, e.Device} {
			requireFigures(t, all)
		}
	}
}

func requireCore(t *testing.T, core int) {
	t.Helper()
	require.True(t, core >= 0 && core < maxIndex)
}

func requireParts(t *testing.T, parts map[string]float64) {
	t.Helper()
	requireFigures(t, parts)
	for name := range parts {
		require.Regexp(t, `^[\w-]{1,64}$`, name)
	}
}

func requireFigures(t *testing.T, all map[string]float64) {
	t.Helper()
	for _, v := range all {
		require.True(t, v >= 0 && v < math.MaxInt64)
	}
}
