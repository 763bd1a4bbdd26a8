// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// heading begins a device in what gc-info prints.
const heading = "Device Info:"

// maxListed is more than any partition has.
const maxListed = 1024

// parseText reads what `gc-info --device-info` prints: after the heading a line for each
// attribute, until a blank line or the next heading.
func parseText(out []byte) ([]Device, error) {
	var all []Device
	var a attributes
	headings := 0
	end := func() {
		if a != nil {
			all = append(all, a.device(len(all)))
		}
		a = nil
	}
	for line := range bytes.Lines(out) {
		switch said := strings.TrimSpace(string(line)); {
		case said == heading:
			end()
			headings++
			a = attributes{}
		case said == "":
			end()
		case a != nil:
			a.addLine(said, line[len(line)-1] == '\n')
		}
	}
	end()
	if headings == 0 {
		return nil, errUnknown
	}
	return all, nil
}

// addLine takes `name: value`. A line that is not whole may be cut off: the half of a
// number would be a number, but its unit is at the end.
func (a attributes) addLine(said string, whole bool) {
	name, value, _ := strings.Cut(said, ": ")
	if !whole && !endsWithUnit(value) {
		return
	}
	a[strings.TrimSuffix(name, ":")] = text(value)
}

func endsWithUnit(value string) bool {
	return slices.ContainsFunc([]string{celsius, megahertz, watts, percent, transfers}, func(unit string) bool {
		return strings.HasSuffix(value, unit)
	})
}

// listed is a line of `gc-info -l`; older versions say type. Lines of members of a
// device that is made of others begin otherwise.
var listed = regexp.MustCompile(`^\s*-\+- Id:\s*\[(\d+)\],\s*(?:target|type):\s*\[([^\]]*)\]`)

// ParseList returns the numbers of the devices that `gc-info -l` printed, in its order,
// without those that are made of others.
func ParseList(out []byte) ([]int, error) {
	var ids []int
	for line := range bytes.Lines(out) {
		found := listed.FindSubmatch(line)
		if found == nil || isMulti(string(found[2])) {
			continue
		}
		id, err := strconv.ParseInt(string(found[1]), 10, 32)
		if err != nil || slices.Contains(ids, int(id)) {
			continue
		}
		if len(ids) == maxListed {
			return nil, fmt.Errorf("there are more than %d devices", maxListed)
		}
		ids = append(ids, int(id))
	}
	return ids, nil
}
