// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/figures"
)

// Powermetrics reads a document of powermetrics with its sampler gpu_power.
func Powermetrics(document []byte) (*figures.Figures, error) {
	value, err := parsePlist(document)
	if err != nil {
		return nil, fmt.Errorf("powermetrics: %w", err)
	}
	all, _ := value.(map[string]any)
	gpu, processor := dictionary(value, "gpu"), dictionary(value, "processor")
	f := &figures.Figures{
		// It is in MHz, whatever its name says.
		Clock:       clock(number(gpu, "freq_hz")),
		Power:       milliwatts(processor, "gpu_power").Or(meanPower(gpu, number(all, "elapsed_ns"))),
		NeuralPower: milliwatts(processor, "ane_power"),
		CPUPower:    milliwatts(processor, "cpu_power"),
	}
	if idle := percent(number(gpu, "idle_ratio")); idle.Known {
		f.GPU = optional.Some(100 * (1 - idle.Value/100))
	}
	if !f.Any() {
		return nil, errors.New("powermetrics: the document has no figure of a GPU")
	}
	return f, nil
}

func milliwatts(all map[string]any, name string) figures.Float {
	watts := power(number(all, name))
	watts.Value /= 1000
	return watts
}

// minInterval is the shortest time, in nanoseconds, of which an energy says anything.
const minInterval = 50e6

// meanPower is the energy of the document, in mJ, over its time.
func meanPower(gpu map[string]any, nanoseconds *float64) figures.Float {
	energy := power(number(gpu, "gpu_energy"))
	if !energy.Known || nanoseconds == nil || *nanoseconds < minInterval {
		return figures.Float{}
	}
	return optional.Some(energy.Value / 1e3 / (*nanoseconds / 1e9))
}

// plistEnd is how a document ends.
var plistEnd = []byte("</plist>")

// Plists is a writer that cuts what it gets into property lists. It is not safe for
// concurrent use.
type Plists struct {
	// Document gets each of them. It must not keep the slice.
	Document func([]byte)
	// TooLong is called once for each document of more than MaxDocument that is dropped.
	TooLong func()

	begun []byte
	skips bool
}

// Write implements io.Writer. It never fails.
func (p *Plists) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		searched := max(0, len(p.begun)-len(plistEnd)+1)
		room := min(len(b), MaxDocument+len(plistEnd))
		p.begun = append(p.begun, b[:room]...)
		b = b[room:]
		p.cut(searched)
	}
	return n, nil
}

// cut passes on the documents that are complete. What was searched has no end.
func (p *Plists) cut(searched int) {
	for {
		i := bytes.Index(p.begun[searched:], plistEnd)
		if i < 0 {
			break
		}
		end := searched + i + len(plistEnd)
		// A zero is before each document: what is left before it is half of another.
		document := p.begun[bytes.LastIndexByte(p.begun[:end], 0)+1 : end]
		if !p.skips && end <= MaxDocument {
			p.Document(bytes.TrimSpace(document))
		} else if !p.skips {
			p.TooLong()
		}
		p.begun = append(p.begun[:0], p.begun[end:]...)
		p.skips, searched = false, 0
	}
	if len(p.begun) <= MaxDocument {
		return
	}
	if !p.skips {
		p.skips = true
		p.TooLong()
	}
	// The end of the document may be cut in two.
	p.begun = append(p.begun[:0], p.begun[len(p.begun)-len(plistEnd)+1:]...)
}
