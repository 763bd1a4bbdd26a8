// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/figures"
)

// cleared has no values that are unknown.
func cleared(f *figures.Figures) figures.Figures {
	all := *f
	for _, v := range []*figures.Float{
		&all.GPU, &all.Temperature, &all.Power, &all.Clock, &all.SystemPower, &all.NeuralPower, &all.CPUPower,
		&all.CPUTemperature, &all.Efficiency.Busy, &all.Efficiency.Clock, &all.Performance.Busy, &all.Performance.Clock,
	} {
		if !v.Known {
			v.Value = 0
		}
	}
	return all
}

func some(v float64) figures.Float { return optional.Some(v) }

func TestMacmon(t *testing.T) {
	for name, tt := range map[string]struct {
		line string
		want figures.Figures
	}{
		"before 0.8: a scaled share is none": {
			`{"temp":{"cpu_temp_avg":43,"gpu_temp_avg":36},"gpu_usage":[461,0.02],"gpu_power":0.5,"cpu_power":0.2,"ane_power":0.0,"sys_power":5.8}`,
			figures.Figures{Temperature: some(36), CPUTemperature: some(43), Clock: some(461), Power: some(0.5), CPUPower: some(0.2), NeuralPower: some(0), SystemPower: some(5.8)},
		},
		"from 0.8 on": {
			`{"gpu_freq_mhz":500,"gpu_scaled_ratio":0.02,"gpu_active_ratio":0.25,"gpu_usage":[461,0.02],"gpu_power":0.5,` +
				`"ecpu_freq_mhz":1100,"ecpu_active_ratio":0.5,"pcpu_freq_mhz":1800,"pcpu_active_ratio":1,"soc":{"chip_name":"Apple M3 Pro","gpu_cores":18}}`,
			figures.Figures{
				Model: "Apple M3 Pro", Cores: 18, GPU: some(25), Clock: some(500), Power: some(0.5),
				Efficiency: figures.Cluster{Busy: some(50), Clock: some(1100)}, Performance: figures.Cluster{Busy: some(100), Clock: some(1800)},
			},
		},
		"what is none is left out": {
			`{"temp":{"cpu_temp_avg":0,"gpu_temp_avg":128},"gpu_usage":[0,0],"gpu_power":0.1,"sys_power":0,"gpu_active_ratio":1.5,"ane_power":-1}`,
			figures.Figures{Power: some(0.1)},
		},
		"other types": {
			`{"temp":"hot","gpu_usage":{"a":1},"gpu_power":0.1,"gpu_freq_mhz":"500","soc":[]}`,
			figures.Figures{Power: some(0.1)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Macmon([]byte(tt.line))
			require.NoError(t, err)
			assert.Equal(t, tt.want, cleared(f))
		})
	}
	for _, line := range []string{"", "macmon 0.6", `{"gpu_power":0.1`, "{}", `{"sys_power":1}`, "[]", "null"} {
		_, err := Macmon([]byte(line))
		require.ErrorContains(t, err, "reading a line of macmon", line)
	}
}

func list(body string) string {
	return `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">` + body + `</plist>`
}

const gpuOnly = `<dict><key>elapsed_ns</key><integer>2000000000</integer><key>gpu</key><dict>` +
	`<key>freq_hz</key><real>372.5</real><key>gpu_energy</key><integer>500</integer><key>idle_ratio</key><real>0.75</real></dict></dict>`

func TestPowermetrics(t *testing.T) {
	for name, tt := range map[string]struct {
		body string
		want figures.Figures
	}{
		"the GPU's energy": {gpuOnly, figures.Figures{GPU: some(25), Clock: some(372.5), Power: some(0.25)}},
		"the processor's power": {
			strings.Replace(gpuOnly, "<dict>", "<dict><key>processor</key><dict><key>gpu_power</key><real>1500</real><key>ane_power</key><integer>0</integer><key>cpu_power</key><real>44</real></dict>", 1),
			figures.Figures{GPU: some(25), Clock: some(372.5), Power: some(1.5), NeuralPower: some(0), CPUPower: some(0.044)},
		},
		"no time":    {strings.Replace(gpuOnly, "2000000000", "0", 1), figures.Figures{GPU: some(25), Clock: some(372.5)}},
		"no clock":   {strings.Replace(gpuOnly, "372.5", "0", 1), figures.Figures{GPU: some(25), Power: some(0.25)}},
		"no share":   {strings.Replace(gpuOnly, "0.75", "1.75", 1), figures.Figures{Clock: some(372.5), Power: some(0.25)}},
		"not finite": {strings.Replace(gpuOnly, "0.75", "nan", 1), figures.Figures{Clock: some(372.5), Power: some(0.25)}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Powermetrics([]byte(list(tt.body)))
			require.NoError(t, err)
			assert.Equal(t, tt.want, cleared(f))
		})
	}
}

func TestDocumentsThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct{ document, want string }{
		"empty":                   {"", "EOF"},
		"half":                    {list(gpuOnly)[:300], "unexpected EOF"},
		"another document":        {"<html></html>", `begins with "html"`},
		"no XML":                  {"{ gpu = 1; }", "EOF"},
		"binary":                  {"bplist00", "EOF"},
		"too deep":                {list(strings.Repeat("<array>", 100) + strings.Repeat("</array>", 100)), "deeper than 64"},
		"deep without an end":     {strings.Repeat("<plist>", 1000), "deeper than 64"},
		"too large":               {list("<string>" + strings.Repeat("x", MaxDocument) + "</string>"), "larger than"},
		"no figure":               {list("<dict></dict>"), "no figure"},
		"a list":                  {list("<array></array>"), "no figure"},
		"another type":            {list("<dict><key>gpu</key><string>x</string></dict>"), "no figure"},
		"a number that is a text": {list("<dict><key>gpu</key><integer>x</integer></dict>"), "reading a property list"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Powermetrics([]byte(tt.document))
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "powermetrics")
		})
	}
}

// Whatever the pieces are in which documents come, they are the same.
func TestPlistsAreCut(t *testing.T) {
	first, second := list("<string>1</string>"), list("<string>2</string>")
	long := list("<string>" + strings.Repeat("x", MaxDocument) + "</string>")
	for name, tt := range map[string]struct {
		output string
		want   []string
		long   int
	}{
		"separated by a zero":   {first + "\n\x00" + second + "\n", []string{first, second}, 0},
		"half a document first": {first[:40] + "\x00" + second, []string{second}, 0},
		"half a document":       {first + "\n\x00" + second[:40], []string{first}, 0},
		"nothing":               {"", nil, 0},
		"one that is long":      {first + "\x00" + long + "\x00" + long + "\x00" + second, []string{first, second}, 2},
		"no document":           {"powermetrics must be invoked as the superuser\n", nil, 0},
	} {
		for _, size := range []int{1, 7, 64 << 10, 3 << 20} {
			if size == 1 && len(tt.output) > MaxDocument {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				var got []string
				tooLong := 0
				p := Plists{Document: func(d []byte) { got = append(got, string(d)) }, TooLong: func() { tooLong++ }}
				for output := []byte(tt.output); len(output) > 0; {
					n := min(size, len(output))
					written, err := p.Write(output[:n])
					require.NoError(t, err)
					require.Equal(t, n, written)
					output = output[n:]
					require.LessOrEqual(t, len(p.begun), MaxDocument)
				}
				assert.Equal(t, tt.want, got)
				assert.Equal(t, tt.long, tooLong)
			})
		}
	}
}

func TestIOReg(t *testing.T) {
	entry := capture.Entry{Class: "AGXAcceleratorG13X", Properties: capture.Properties{
		Model: "Apple M1 Max", Cores: 32, Statistics: capture.Statistics{"In use system memory (driver)": 0, "In use system memory": 274877906944, "low": -1},
	}}
	statistics := `<key>PerformanceStatistics</key><dict><key>In use system memory (driver)</key><integer>0</integer><key>In use system memory</key><integer>274877906944</integer>` +
		`<key>low</key><integer>-1</integer><key>share</key><real>0.5</real><key>name</key><string>x</string></dict>`
	for name, tt := range map[string]struct {
		output string
		want   []capture.Entry
	}{
		"a virtual machine": {"\n", nil},
		"property list": {
			list(`<array><dict><key>IOObjectClass</key><string>AGXAcceleratorG13X</string><key>gpu-core-count</key><integer>32</integer><key>model</key><string>Apple M1 Max</string>` + statistics + `</dict><string>x</string></array>`),
			[]capture.Entry{entry},
		},
		"data and another key": {
			list(`<array><dict><key>IOClass</key><string>AGXAcceleratorG13X</string><key>gpu-core-count</key><integer>32</integer><key>model</key><data>QXBwbGUgTTEgTWF4AA==</data>` + statistics + `</dict></array>`),
			[]capture.Entry{entry},
		},
		"text": {
			"+-o AGXAcceleratorG13X  <class AGXAcceleratorG13X, id 0x1, registered>\n    {\n      \"model\" = \"Apple M1 Max\"\n      \"gpu-core-count\" = 32\n" +
				"      \"PerformanceStatistics\" = {\"In use system memory (driver)\"=0,\"In use system memory\"=274877906944,\"low\"=-1,\"name\"=\"x\",\"big\"=99999999999999999999}\n    }\n",
			[]capture.Entry{entry},
		},
		"text that was cut": {
			"+-o x  <class AGXAcceleratorG13X, id 0x1>\n    {\n      \"PerformanceStatistics\" = {\"recoveryCount\"=0,\"In use system memory\"=2748",
			[]capture.Entry{{Class: "AGXAcceleratorG13X"}},
		},
		"text without properties": {"+-o x  <class AGXAcceleratorG13X, id 0x1>\n", []capture.Entry{{Class: "AGXAcceleratorG13X"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := IOReg([]byte(tt.output))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	for output, want := range map[string]string{
		"ioreg: error: unknown option":   "no entry",
		list("<dict></dict>"):            "no array",
		"<plist><array>":                 "EOF",
		list("<array>") + "</array><a>x": "ioreg",
	} {
		_, err := IOReg([]byte(output))
		require.ErrorContains(t, err, want)
	}
}

// requireSane wants figures within the ranges that the metrics promise.
func requireSane(t testing.TB, f *figures.Figures) {
	t.Helper()
	for name, tt := range map[string]struct {
		v    figures.Float
		high float64
	}{
		"gpu": {f.GPU, 100}, "clock": {f.Clock, maxClock}, "power": {f.Power, math.MaxFloat64}, "share": {f.PowerPercent(), math.MaxFloat64},
		"temperature": {f.Temperature, 120}, "system": {f.SystemPower, math.MaxFloat64}, "ane": {f.NeuralPower, math.MaxFloat64}, "cpu": {f.CPUPower, math.MaxFloat64},
		"cores": {f.Efficiency.Busy, 100}, "cores' clock": {f.Performance.Clock, maxClock},
	} {
		if tt.v.Known {
			require.GreaterOrEqual(t, tt.v.Value, 0.0, name)
			require.LessOrEqual(t, tt.v.Value, tt.high, name)
		}
	}
}

func FuzzMacmon(f *testing.F) {
	f.Add([]byte(`{"temp":{"cpu_temp_avg":43,"gpu_temp_avg":36},"gpu_usage":[461,0.02],"gpu_power":0.5,"gpu_active_ratio":0.25,"sys_power":5.8,"soc":{"gpu_cores":-1}}`))
	f.Add([]byte(`{"gpu_power":1e308,"soc":{"gpu_cores":1},"gpu_usage":[null]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if got, err := Macmon(line); err == nil {
			requireSane(t, got)
		}
	})
}

func FuzzPowermetrics(f *testing.F) {
	f.Add([]byte(list(gpuOnly)))
	f.Add([]byte("<plist><dict><key>gpu</key><dict><key>idle_ratio</key><real>-inf</real><key>gpu_energy</key><integer>0xff</integer></dict><key>elapsed_ns</key><real>1e-300</real></dict></plist>"))
	f.Fuzz(func(t *testing.T, output []byte) {
		p := Plists{TooLong: func() {}, Document: func(document []byte) {
			if got, err := Powermetrics(document); err == nil {
				requireSane(t, got)
			}
		}}
		_, err := p.Write(output)
		require.NoError(t, err)
		if got, err := Powermetrics(output); err == nil {
			requireSane(t, got)
		}
	})
}

func FuzzIOReg(f *testing.F) {
	f.Add([]byte(list("<array><dict><key>IOClass</key><string>AGXAccelerator</string><key>PerformanceStatistics</key><dict><key>a</key><integer>1</integer></dict></dict></array>")))
	f.Add([]byte("+-o x  <class AGXAcceleratorG13X, id 0x1>\n | \"PerformanceStatistics\" = {\"a\"=1}\n"))
	f.Add([]byte(list("<array><dict><key>CF$UID</key><integer>1</integer></dict></array>")))
	f.Fuzz(func(t *testing.T, output []byte) {
		entries, err := IOReg(output)
		if err != nil {
			require.Nil(t, entries)
		}
		if len(bytes.TrimSpace(output)) == 0 {
			require.NoError(t, err)
		}
	})
}
