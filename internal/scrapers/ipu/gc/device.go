// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package gc reads what Graphcore's command line tools (gc-inventory, gc-monitor,
// gc-info) and wrappers of the library gcipuinfo print.
package gc

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

// multiIPU is the target of a logical device that is made of others.
const multiIPU = "Multi IPU"

// Device is what a tool tells of an IPU. What it does not tell, N/A and what is no
// plain number is unknown.
type Device struct {
	// ID is the device's number in the active partition, Position its place in the
	// tool's list, from 0.
	ID       optional.Of[int]
	Position int
	// Multi says that it is made of other devices.
	Multi bool
	// Pid is the process that is attached, in the pid namespace and on the machine
	// where that runs; 0 for none.
	Pid int

	// Temperatures are in degrees Celsius.
	BoardTemp, DieTemp optional.Of[float64]
	// Clock is in MHz, LinkSpeed in gigatransfers per second.
	Clock, LinkSpeed optional.Of[float64]
	// Power is in watts; that of the board is of all its IPUs.
	Power, TotalBoardPower optional.Of[float64]
	// Utilisations are in percent.
	Utilisation, SessionUtilisation optional.Of[float64]
}

// Number is the device's number: its place where the tool gives none.
func (d *Device) Number() int {
	if d.ID.Known {
		return d.ID.Value
	}
	return d.Position
}

// The units, which are glued to numbers or stand after a blank.
const (
	celsius   = "C"
	megahertz = "MHz"
	watts     = "W"
	percent   = "%"
	transfers = "GT/s"
)

// text is the value of an attribute: a text, or the digits of a number of JSON.
type text string

// attributes are what a tool gives by their names.
type attributes map[string]text

// device reads the attributes that gcipuinfo, gc-inventory and gc-info give.
func (a attributes) device(position int) Device {
	return Device{
		ID:                 index(a["id"]),
		Position:           position,
		Multi:              isMulti(string(a["target"])),
		Pid:                pid(a["user process id"]),
		BoardTemp:          number(a["average board temp"], celsius),
		DieTemp:            number(a["average die temp"], celsius),
		Clock:              number(a["clock"], megahertz),
		LinkSpeed:          number(a["speed"], transfers).Or(number(a["link speed"], transfers)),
		Power:              atLeastZero(number(a["ipu power"], watts)),
		TotalBoardPower:    atLeastZero(number(a["total board power"], watts)),
		Utilisation:        atLeastZero(number(a["ipu utilisation"], percent)),
		SessionUtilisation: atLeastZero(number(a["ipu utilisation (session)"], percent)),
	}
}

// monitored reads those that gc-monitor gives, which has other names. Beside these
// its names are not known for sure.
func (a attributes) monitored(position int) Device {
	return Device{
		ID:                 index(a["ID"]),
		Position:           position,
		Pid:                pid(a["PID"]),
		Utilisation:        atLeastZero(number(a["IPU utilisation"], percent)),
		SessionUtilisation: atLeastZero(number(a["IPU utilisation session"], percent)),
	}
}

func isMulti(target string) bool { return strings.EqualFold(strings.TrimSpace(target), multiIPU) }

var plainNumber = regexp.MustCompile(`^[+-]?\d+(\.\d+)?$`)

// number reads a plain decimal number, with its unit or without any.
func number(t text, unit string) optional.Of[float64] {
	digits := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(string(t)), unit))
	if !plainNumber.MatchString(digits) {
		return optional.Of[float64]{}
	}
	v, err := strconv.ParseFloat(digits, 64)
	return optional.If(v, err == nil && !math.IsInf(v, 0))
}

func atLeastZero(o optional.Of[float64]) optional.Of[float64] {
	if o.Value < 0 {
		return optional.Of[float64]{}
	}
	return o
}

// index reads the number of a device.
func index(t text) optional.Of[int] {
	v, err := strconv.ParseInt(strings.TrimSpace(string(t)), 10, 32)
	return optional.If(int(v), err == nil && v >= 0)
}

// pid reads a process id; 0 is none.
func pid(t text) int {
	v := index(t)
	if !v.Known {
		return 0
	}
	return v.Value
}
