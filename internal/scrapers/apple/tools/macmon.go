// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package tools reads what programs on a Mac print of its GPU.
package tools

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/figures"
)

// macmonLine is a line of `macmon pipe`: from version 0.8 on with the shares of time that
// count, before that with shares scaled by the clock, which do not.
type macmonLine struct {
	Temperatures struct {
		CPU *float64 `json:"cpu_temp_avg"`
		GPU *float64 `json:"gpu_temp_avg"`
	} `json:"temp"`
	GPUClock          *float64   `json:"gpu_freq_mhz"`
	GPUActive         *float64   `json:"gpu_active_ratio"`
	GPUUsage          []*float64 `json:"gpu_usage"`
	EfficiencyClock   *float64   `json:"ecpu_freq_mhz"`
	EfficiencyActive  *float64   `json:"ecpu_active_ratio"`
	PerformanceClock  *float64   `json:"pcpu_freq_mhz"`
	PerformanceActive *float64   `json:"pcpu_active_ratio"`
	GPUPower          *float64   `json:"gpu_power"`
	CPUPower          *float64   `json:"cpu_power"`
	NeuralPower       *float64   `json:"ane_power"`
	SystemPower       *float64   `json:"sys_power"`
	Chip              struct {
		Name  string `json:"chip_name"`
		Cores int64  `json:"gpu_cores"`
	} `json:"soc"`
}

// Macmon reads a line of `macmon pipe`. A field of another type than the known one is
// taken for missing.
func Macmon(line []byte) (*figures.Figures, error) {
	var l macmonLine
	err := json.Unmarshal(line, &l)
	if _, otherType := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !otherType {
		return nil, fmt.Errorf("reading a line of macmon: %w", err)
	}
	f := &figures.Figures{
		Model: l.Chip.Name,
		Cores: max(l.Chip.Cores, 0),
		GPU:   percent(l.GPUActive),
		Power: power(l.GPUPower),
		Clock: clock(l.GPUClock),

		Temperature:    celsius(l.Temperatures.GPU),
		CPUTemperature: celsius(l.Temperatures.CPU),
		NeuralPower:    power(l.NeuralPower),
		CPUPower:       power(l.CPUPower),
		SystemPower:    power(l.SystemPower),
		Efficiency:     figures.Cluster{Busy: percent(l.EfficiencyActive), Clock: clock(l.EfficiencyClock)},
		Performance:    figures.Cluster{Busy: percent(l.PerformanceActive), Clock: clock(l.PerformanceClock)},
	}
	if len(l.GPUUsage) > 0 {
		f.Clock = f.Clock.Or(clock(l.GPUUsage[0]))
	}
	if f.SystemPower.Value == 0 { // not available
		f.SystemPower = figures.Float{}
	}
	if !f.Any() {
		return nil, errors.New("reading a line of macmon: it has no figure of a GPU")
	}
	return f, nil
}

// percent is a share of 0 to 1 in percent.
func percent(ratio *float64) figures.Float {
	if ratio == nil || *ratio < 0 || *ratio > 1 {
		return figures.Float{}
	}
	return optional.Some(100 * *ratio)
}

func power(watts *float64) figures.Float {
	if watts == nil {
		return figures.Float{}
	}
	return optional.If(*watts, *watts >= 0)
}

// maxClock is above any clock, in MHz.
const maxClock = 6000

// clock leaves out 0, which stands for none.
func clock(megahertz *float64) figures.Float {
	if megahertz == nil {
		return figures.Float{}
	}
	return optional.If(*megahertz, *megahertz > 0 && *megahertz <= maxClock)
}

func celsius(v *float64) figures.Float {
	if v == nil {
		return figures.Float{}
	}
	return figures.Celsius(*v)
}
