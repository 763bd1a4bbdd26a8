// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// TicksPerSecond is the unit of the times in /proc/PID/stat: USER_HZ, which is
// 100 on every Linux ABI that Go supports.
const TicksPerSecond = 100

// ErrEnded says that a file of /proc/PID was empty or cut off, which is what a
// process leaves that ended between being listed and being read.
var ErrEnded = errors.New("process ended")

// ErrNoCPUs says that a status file has no line of allowed CPUs, as in sandboxes
// that imitate /proc.
var ErrNoCPUs = errors.New("status: no Cpus_allowed_list")

// PIDStat is /proc/PID/stat.
type PIDStat struct {
	// Comm is the name without the parentheses around it.
	Comm []byte
	// State is R, S, D, Z, X...
	State byte
	PPid  int
	// UTime and STime are the process' own user and system time; CUTime and
	// CSTime that of the children it waited for. In ticks.
	UTime, STime, CUTime, CSTime uint64
	Threads                      int
	// StartTime is in ticks since boot. Together with boot id and pid it
	// identifies a process.
	StartTime uint64
	// StackStart is the address of the stack's bottom, which exec changes; 0
	// where we may not trace the process.
	StackStart uint64
}

// Gone tells whether the process has ended and only its entry is left.
func (s *PIDStat) Gone() bool { return s.State == 'Z' || s.State == 'X' || s.State == 'x' }

// ParsePIDStat reads /proc/PID/stat. The name in parentheses may hold blanks
// and parentheses itself, so it ends at the last one. Comm is a part of b.
func ParsePIDStat(b []byte) (PIDStat, error) {
	var s PIDStat
	open, closing := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || closing < open {
		return s, ErrEnded
	}
	s.Comm = b[open+1 : closing]
	rest, _ := nextLine(b[closing+1:])
	state, rest := nextField(rest)
	if len(state) != 1 {
		return s, ErrEnded
	}
	s.State = state[0]
	rest, err := s.parseNumbers(rest)
	if err != nil {
		return s, err
	}
	// It is not shown everywhere, and a number at the very end may be cut off.
	if stack, more, ok := uintField(skipFields(rest, 28-23)); ok && len(more) > 0 {
		s.StackStart = stack
	}
	return s, nil
}

// parseNumbers reads from field 4 (ppid) to field 22 (starttime), and returns what
// follows. More fields follow: a number at the very end may be the beginning of a longer one.
func (s *PIDStat) parseNumbers(b []byte) (rest []byte, err error) {
	for number := 4; number <= 22; number++ {
		var field []byte
		field, b = nextField(b)
		if len(field) == 0 || len(b) == 0 {
			return nil, ErrEnded
		}
		dst, asInt := s.number(number)
		if dst == nil && asInt == nil {
			continue
		}
		// cutime and cstime are signed in the kernel's format.
		digits, negative := bytes.CutPrefix(field, []byte{'-'})
		n, ok := parseUint(digits)
		if negative && ok && (number == 16 || number == 17) {
			continue
		}
		if negative || !ok {
			return nil, fmt.Errorf("stat: field %d not understood: %.20q", number, field)
		}
		if dst != nil {
			*dst = n
			continue
		}
		if *asInt, ok = parseInt(field); !ok {
			return nil, fmt.Errorf("stat: field %d is too large: %d", number, n)
		}
	}
	return b, nil
}

// number returns where the field with this number goes.
func (s *PIDStat) number(n int) (*uint64, *int) {
	switch n {
	case 4:
		return nil, &s.PPid
	case 14:
		return &s.UTime, nil
	case 15:
		return &s.STime, nil
	case 16:
		return &s.CUTime, nil
	case 17:
		return &s.CSTime, nil
	case 20:
		return nil, &s.Threads
	case 22:
		return &s.StartTime, nil
	}
	return nil, nil
}

// ParseResident reads field 2 of /proc/PID/statm: resident pages. More fields
// follow.
func ParseResident(b []byte) (uint64, error) {
	line, _ := nextLine(b)
	field, rest := nextField(skipFields(line, 1))
	if len(rest) == 0 {
		return 0, ErrEnded
	}
	pages, ok := parseUint(field)
	if !ok {
		return 0, badLine("statm", 1, line)
	}
	return pages, nil
}

// findLine returns the first line that begins with key, its number, and what
// follows the key; found is false when there is none.
func findLine(b []byte, key string) (line, value []byte, number int, found bool) {
	for number = 1; len(b) > 0; number++ {
		line, b = nextLine(b)
		if value, found = bytes.CutPrefix(line, []byte(key)); found {
			return line, value, number, true
		}
	}
	return nil, nil, 0, false
}

// ParsePSS reads the line Pss of /proc/PID/smaps_rollup, in bytes.
func ParsePSS(b []byte) (uint64, error) {
	line, value, number, found := findLine(b, "Pss:")
	if !found {
		return 0, ErrEnded // a process without memory left
	}
	kib, _, ok := uintField(value)
	if !ok || kib > math.MaxUint64>>14 {
		return 0, badLine("smaps_rollup", number, line)
	}
	return kib << 10, nil
}

// ParseCPUsAllowed returns how many CPUs the line Cpus_allowed_list of
// /proc/PID/status names, or ErrNoCPUs.
func ParseCPUsAllowed(b []byte) (count int, err error) {
	err = eachAllowed(b, func(lo, hi int) bool {
		count += hi - lo + 1
		return count > 0
	})
	if err != nil {
		return 0, err
	}
	return count, nil
}

// eachAllowed calls fn for each part of the line Cpus_allowed_list.
func eachAllowed(b []byte, fn func(lo, hi int) bool) error {
	line, list, number, found := findLine(b, "Cpus_allowed_list:")
	if !found {
		return ErrNoCPUs
	}
	if !eachRange(bytes.TrimSpace(list), fn) {
		return badLine("status", number, line)
	}
	return nil
}

// maxCPUs is above what any kernel is built for.
const maxCPUs = 1 << 16

// CPUSet is a set of logical CPUs, by number. The zero value is empty.
type CPUSet struct {
	words []uint64
}

// Clear empties the set.
func (s *CPUSet) Clear() { clear(s.words) }

// Count is how many CPUs are in the set.
func (s *CPUSet) Count() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

func (s *CPUSet) add(lo, hi int) {
	for len(s.words) <= hi/64 {
		s.words = append(s.words, 0)
	}
	for n := lo; n <= hi; n++ {
		s.words[n/64] |= 1 << (n % 64)
	}
}

// AddCPUsAllowed adds the CPUs that the line Cpus_allowed_list of
// /proc/PID/status names, or returns ErrNoCPUs.
func (s *CPUSet) AddCPUsAllowed(b []byte) error {
	return eachAllowed(b, func(lo, hi int) bool {
		if hi >= maxCPUs {
			return false
		}
		s.add(lo, hi)
		return true
	})
}

// eachRange calls fn for each part of a list such as "0-3,64-67", and tells
// whether the list was understood and fn liked all of it.
func eachRange(b []byte, fn func(lo, hi int) bool) bool {
	for {
		part, rest, more := bytes.Cut(b, []byte{','})
		first, last, isRange := bytes.Cut(part, []byte{'-'})
		lo, ok := parseInt(first)
		if !ok {
			return false
		}
		hi := lo
		if isRange {
			if hi, ok = parseInt(last); !ok || hi < lo {
				return false
			}
		}
		if !fn(lo, hi) {
			return false
		}
		if !more {
			return true
		}
		b = rest
	}
}
