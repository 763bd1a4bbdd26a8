// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import "bytes"

// largeBuffer is what is not kept for the sake of one long line.
const largeBuffer = 1 << 20

// Lines is a writer that cuts what it gets into lines. A last line without an end is
// not passed on. It is not safe for concurrent use.
type Lines struct {
	// Max is how many bytes a line may have; a longer one is dropped up to its end.
	Max int
	// Line gets each line without its end. It must not keep the slice.
	Line func(line []byte)
	// TooLong is called once for each line that is dropped, when that begins.
	TooLong func()

	begun []byte
	skips bool
}

// Write implements io.Writer. It never fails.
func (l *Lines) Write(p []byte) (int, error) {
	n := len(p)
	for {
		part, rest, ended := bytes.Cut(p, []byte{'\n'})
		l.add(part, ended)
		if !ended {
			return n, nil
		}
		p = rest
	}
}

func (l *Lines) add(part []byte, ended bool) {
	if !l.skips && len(l.begun)+len(part) > l.Max {
		l.skips, l.begun = true, nil
		l.TooLong()
	}
	switch {
	case l.skips:
		l.skips = !ended
	case !ended:
		l.begun = append(l.begun, part...)
	case len(l.begun) == 0:
		l.Line(part)
		l.empty(len(part))
	default:
		l.begun = append(l.begun, part...)
		l.Line(l.begun)
		l.empty(len(l.begun))
	}
}

// empty keeps the memory for the next line, if the one of this length had a use for it.
func (l *Lines) empty(length int) {
	if cap(l.begun) > max(largeBuffer, 4*length) {
		l.begun = nil
	}
	l.begun = l.begun[:0]
}
