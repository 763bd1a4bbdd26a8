// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"io"
)

// LimitError says that something is larger than it may be.
type LimitError struct {
	What string // file, response or output that is too large
	Max  int64  // bytes
	Key  string // config key that sets Max; empty when it is fixed
}

func (e *LimitError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%s is larger than the limit of %d bytes", e.What, e.Max)
	}
	return fmt.Sprintf("%s is larger than the limit of %d bytes (config key %s)", e.What, e.Max, e.Key)
}

// LimitReader passes on up to limit bytes of r. Where [io.LimitReader] cuts a
// longer input silently, it returns a [LimitError] with what and key in it.
func LimitReader(r io.Reader, limit int64, what, key string) io.Reader {
	return &limitReader{r: r, left: max(limit, 0), over: LimitError{What: what, Max: limit, Key: key}}
}

type limitReader struct {
	r    io.Reader
	left int64 // -1 when the limit was passed
	over LimitError
}

func (l *limitReader) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, &l.over
	}
	// One byte more than allowed tells "just full" from "too large".
	if int64(len(p))-1 > l.left {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	if int64(n) <= l.left {
		l.left -= int64(n)
		return n, err
	}
	n, l.left = int(l.left), -1
	return n, &l.over
}
