// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

// Temperatures that count, in degrees Celsius. What is outside comes from firmware that
// has none, for a part that is powered off.
const minCelsius, maxCelsius = 15, 120

// systemPowerKey is the SMC key of the whole machine's power.
const systemPowerKey = "PSTR"

// Kind says what an SMC key or an HID sensor tells.
type Kind int

// The kinds.
const (
	Other Kind = iota
	GPUTemperature
	CPUTemperature
	SystemPower
)

// KindOfKey goes by the beginning of a key's name: there are dozens, and others on each
// chip. TG (battery) and tG are something else.
func KindOfKey(name string) Kind {
	switch {
	case name == systemPowerKey:
		return SystemPower
	case len(name) != 4:
		return Other
	}
	switch name[:2] {
	case "Tg":
		return GPUTemperature
	case "Tp", "Te":
		return CPUTemperature
	}
	return Other
}

// KindOfSensor goes by the product's name.
func KindOfSensor(product string) Kind {
	switch {
	case strings.HasPrefix(product, "GPU MTR Temp Sensor"):
		return GPUTemperature
	case strings.HasPrefix(product, "pACC MTR Temp Sensor"), strings.HasPrefix(product, "eACC MTR Temp Sensor"):
		return CPUTemperature
	}
	return Other
}

// temperatures takes the figures of the SMC, and the temperatures of the HID system
// where the SMC has none.
func (f *Figures) temperatures(c *capture.Capture) {
	f.Temperature = Temperature(c, GPUTemperature)
	f.CPUTemperature = Temperature(c, CPUTemperature)
	for i := range c.SMC.Keys {
		key := &c.SMC.Keys[i]
		if KindOfKey(key.Name) != SystemPower {
			continue
		}
		if w := decode(key); w.Known && w.Value > 0 {
			f.SystemPower = w
			return
		}
	}
}

// Temperature is the mean of a kind's sensors that have one.
func Temperature(c *capture.Capture, kind Kind) Float {
	var smc, hid mean
	for i := range c.SMC.Keys {
		if key := &c.SMC.Keys[i]; KindOfKey(key.Name) == kind {
			smc.add(decode(key))
		}
	}
	for _, sensor := range c.HID.Sensors {
		if KindOfSensor(sensor.Product) == kind {
			hid.add(optional.Some(sensor.Celsius))
		}
	}
	return smc.value().Or(hid.value())
}

// Celsius is a temperature if it is one.
func Celsius(v float64) Float { return optional.If(v, v >= minCelsius && v <= maxCelsius) }

// mean is that of temperatures.
type mean struct{ sum, n float64 }

func (m *mean) add(v Float) {
	if t := Celsius(v.Value); v.Known && t.Known {
		m.sum += t.Value
		m.n++
	}
}

func (m *mean) value() Float {
	if m.n == 0 {
		return Float{}
	}
	return optional.Some(m.sum / m.n)
}

// decode is the value of a key, if it has a type of numbers.
func decode(key *capture.Key) Float {
	switch data := key.Data; {
	case key.Type == "flt " && len(data) == 4:
		return finite(float64(math.Float32frombits(binary.LittleEndian.Uint32(data))))
	case key.Type == "ioft" && len(data) == 8:
		return finite(float64(binary.LittleEndian.Uint64(data)) / 65536)
	case key.Type == "sp78" && len(data) == 2:
		return finite(float64(int16(binary.BigEndian.Uint16(data))) / 256)
	}
	return Float{}
}
