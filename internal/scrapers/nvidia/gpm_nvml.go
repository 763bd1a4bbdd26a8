// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

const (
	// Two samples further apart or nearer than this tell nothing.
	maxWindow = 10 * time.Minute
	minWindow = 100 * time.Millisecond
)

// gpmState is the last sample of a GPU or a GPU instance.
type gpmState struct {
	mig bool
	// supported is asked for once.
	supported optional.Of[bool]
	last      nvml.GpmSample
	at        time.Time
	// spare is a sample to be filled.
	spare nvml.GpmSample
}

// hasGPM tells whether the library can do it: all of it, or none.
func hasGPM(d *driver, mig bool) bool {
	for _, s := range []symbol{symGPMSupport, symGPMAlloc, symGPMFree, symGPMGet, symGPMMetrics} {
		if !d.offers(s) {
			return false
		}
	}
	return !mig || d.offers(symGPMMIGGet)
}

// read takes a sample and compares it with the last one: the figures are means
// over the time between. There are none without a good last one.
func (s *gpmState) read(g *gpu, now time.Time, ids []uint32, take func(nvml.GpmSample) nvml.Return) profileReading {
	if g.dead != codeSuccess || !s.isSupported(g) {
		return nil
	}
	sample, ok := s.fill(g, take)
	if !ok {
		s.free(g.driver)
		return nil
	}
	window := now.Sub(s.at)
	if s.last != nil && window >= 0 && window < minWindow {
		s.spare = sample // too early
		return nil
	}
	var figures profileReading
	if s.last != nil && window >= minWindow && window <= maxWindow {
		figures = compare(g, s.last, sample, ids)
	}
	s.last, s.spare, s.at = sample, s.last, now
	return figures
}

func (s *gpmState) isSupported(g *gpu) bool {
	if !hasGPM(g.driver, s.mig) {
		return false
	}
	if !s.supported.Known {
		support, c := try(g, symGPMSupport, g.handle.GpmQueryDeviceSupport)
		g.judge(symGPMSupport, c)
		// An error says nothing of the next time.
		s.supported = optional.If(support.IsSupportedDevice == 1, c == codeSuccess || c == codeNotSupported)
	}
	return s.supported.Value
}

// fill takes a sample.
func (s *gpmState) fill(g *gpu, take func(nvml.GpmSample) nvml.Return) (nvml.GpmSample, bool) {
	sample := s.spare
	s.spare = nil
	if sample == nil {
		allocated := ask(g, symGPMAlloc, g.nvml.GpmSampleAlloc)
		if !allocated.Known {
			return nil, false
		}
		sample = allocated.Value
	}
	symbol := symGPMGet
	if s.mig {
		symbol = symGPMMIGGet
	}
	taken := ask(g, symbol, func() (struct{}, nvml.Return) { return struct{}{}, take(sample) })
	if !taken.Known {
		s.spare = sample // to be freed
	}
	return sample, taken.Known
}

func compare(g *gpu, older, newer nvml.GpmSample, ids []uint32) profileReading {
	question := &g.question
	question.NumMetrics, question.Sample1, question.Sample2 = uint32(len(ids)), older, newer
	for i, id := range ids {
		question.Metrics[i] = nvml.GpmMetric{MetricId: id}
	}
	answer := ask(g, symGPMMetrics, func() (struct{}, nvml.Return) { return struct{}{}, g.nvml.GpmMetricsGet(question) })
	if !answer.Known {
		return nil
	}
	figures := make(profileReading, 0, len(ids))
	for i, id := range ids {
		m := &question.Metrics[i]
		if code(m.NvmlReturn) == codeSuccess && m.Value >= 0 && !math.IsInf(m.Value, 0) { // NaN is not above 0
			figures = append(figures, gpmFigure{id, m.Value})
		}
	}
	return figures
}

// free gives the samples back, if there is time, and tells whether none is left.
func (s *gpmState) free(d *driver) bool {
	for _, sample := range []*nvml.GpmSample{&s.last, &s.spare} {
		if *sample == nil {
			continue
		}
		_, c := call(d, symGPMFree, func() (struct{}, nvml.Return) { return struct{}{}, d.nvml.GpmSampleFree(*sample) })
		if c != codeOver {
			*sample = nil
		}
	}
	return s.last == nil && s.spare == nil
}
