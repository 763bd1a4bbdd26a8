// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package capture has what a Mac tells about its GPU, as it is read and as it is
// recorded in a file. It has no serial number, no UUID and no process id.
package capture

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Format is the only form of a file that is known.
const Format = "apple-capture/1"

// Capture is a look at a Mac.
type Capture struct {
	Format string  `json:"format"`
	System System  `json:"system"`
	Config *Config `json:"config,omitempty"`
	// Pmgr holds the clock tables of the IORegistry's entry pmgr by their names.
	Pmgr map[string][]byte `json:"pmgr"`
	// Registry holds the accelerators of the IORegistry.
	Registry []Entry  `json:"ioreg"`
	Report   IOReport `json:"ioreport"`
	SMC      SMC      `json:"smc"`
	HID      HID      `json:"hid"`
}

// System says which Mac it is.
type System struct {
	Chip  string `json:"chip"`
	Model string `json:"model"`
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	// Memory is that of the machine (hw.memsize), in bytes.
	Memory uint64 `json:"memsize"`
}

// Config is what was configured where it was recorded.
type Config struct {
	GPUPowerLimitWatts float64 `json:"gpu_power_limit_watts"`
}

// Entry is an accelerator of the IORegistry.
type Entry struct {
	Class      string     `json:"class"`
	Properties Properties `json:"properties"`
}

// Properties are those of an accelerator that count.
type Properties struct {
	Model      string     `json:"model,omitempty"`
	Cores      int64      `json:"gpu-core-count,omitempty"`
	Statistics Statistics `json:"PerformanceStatistics,omitempty"`
}

// Statistics are the whole numbers of PerformanceStatistics.
type Statistics map[string]int64

// UnmarshalJSONFrom implements json.UnmarshalerFrom. What is no whole number is left out.
func (s *Statistics) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var all map[string]jsontext.Value
	if err := json.UnmarshalDecode(d, &all); err != nil {
		return err
	}
	if all == nil {
		return nil
	}
	*s = make(Statistics, len(all))
	for name, value := range all {
		var n int64
		if json.Unmarshal(value, &n) == nil && value.Kind() == '0' {
			(*s)[name] = n
		}
	}
	return nil
}

// IOReport holds samples of the channels, or says why there are none.
type IOReport struct {
	Error   string   `json:"error,omitempty"`
	Samples []Sample `json:"samples"`
}

// Sample is what the channels held at a time of the monotonic clock, in nanoseconds.
type Sample struct {
	At       int64     `json:"t_ns"`
	Channels []Channel `json:"channels"`
}

// The kinds of channels.
const (
	Simple = "simple"
	State  = "state"
)

// Channel is a counter, or the time spent in each of some states. Both are since boot.
type Channel struct {
	Group    string      `json:"group"`
	Subgroup string      `json:"subgroup"`
	Name     string      `json:"channel"`
	Unit     string      `json:"unit"`
	Kind     string      `json:"kind"`
	Value    int64       `json:"value,omitzero"`
	States   []Residency `json:"states,omitempty"`
}

// Residency is the time spent in a state, in ticks.
type Residency struct {
	Name  string
	Ticks int64
}

// MarshalJSONTo implements json.MarshalerTo: a list of two.
func (r Residency) MarshalJSONTo(e *jsontext.Encoder) error {
	return json.MarshalEncode(e, []any{r.Name, r.Ticks})
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (r *Residency) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if err := expect(d, '['); err != nil {
		return err
	}
	if err := json.UnmarshalDecode(d, &r.Name); err != nil {
		return err
	}
	if err := json.UnmarshalDecode(d, &r.Ticks); err != nil {
		return err
	}
	return expect(d, ']')
}

func expect(d *jsontext.Decoder, kind jsontext.Kind) error {
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	if token.Kind() != kind {
		return errors.New("a state must be a list of its name and its ticks")
	}
	return nil
}

// SMC holds keys of the system management controller.
type SMC struct {
	Error string `json:"error,omitempty"`
	Keys  []Key  `json:"keys"`
}

// Key is one of them: its name and its type have four characters.
type Key struct {
	Name string `json:"key"`
	Type string `json:"type"`
	Data Hex    `json:"data"`
}

// Hex is written in hexadecimal digits.
type Hex []byte

// MarshalText implements encoding.TextMarshaler.
func (h Hex) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hex) UnmarshalText(text []byte) (err error) {
	*h, err = hex.AppendDecode(nil, text)
	return err
}

// HID holds the temperature sensors of the HID system.
type HID struct {
	Error   string   `json:"error,omitempty"`
	Sensors []Sensor `json:"sensors"`
}

// Sensor is one of them.
type Sensor struct {
	Product string  `json:"product"`
	Celsius float64 `json:"celsius"`
}

// Parse reads the content of a file.
func Parse(content []byte) (*Capture, error) {
	c := &Capture{}
	if err := json.Unmarshal(content, c, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("reading a capture: %w", err)
	}
	if c.Format != Format {
		return nil, fmt.Errorf("reading a capture: unknown format %.40q; known is %q", c.Format, Format)
	}
	return c, nil
}

// Content is that of the file of a capture.
func (c *Capture) Content() ([]byte, error) {
	var b bytes.Buffer
	err := json.MarshalWrite(&b, c, json.Deterministic(true), jsontext.WithIndent(" "), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("writing a capture: %w", err)
	}
	return append(b.Bytes(), '\n'), nil
}

// gpuClass is how the classes of Apple's own GPUs begin.
const gpuClass = "AGXAccelerator"

// GPU returns the entry of Apple's GPU: the first with statistics, else the first; nil
// when there is none.
func (c *Capture) GPU() *Entry {
	var first *Entry
	for i := range c.Registry {
		e := &c.Registry[i]
		if !strings.HasPrefix(e.Class, gpuClass) {
			continue
		}
		if e.Properties.Statistics != nil {
			return e
		}
		if first == nil {
			first = e
		}
	}
	return first
}
