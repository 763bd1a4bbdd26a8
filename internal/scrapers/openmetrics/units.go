// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import "strings"

// units are OpenTelemetry's (UCUM) for the words that OpenMetrics ends names in.
var units = map[string]string{
	"seconds":      "s",
	"milliseconds": "ms",
	"bytes":        "By",
	"celsius":      "Cel",
	"joules":       "J",
	"watts":        "W",
	"volts":        "V",
	"ratio":        "1",
	"percent":      "%",
	"hertz":        "Hz",
	"meters":       "m",
	"info":         "",
}

// unitOf returns the unit that UNIT tells, else that of the name's last word but
// _total. A word that is not known is an annotation, as in {requests}.
func unitOf(name, told string) string {
	if told != "" {
		if unit, ok := units[told]; ok {
			return unit
		}
		return "{" + told + "}"
	}
	name = strings.TrimSuffix(name, "_total")
	return units[name[strings.LastIndexByte(name, '_')+1:]]
}
