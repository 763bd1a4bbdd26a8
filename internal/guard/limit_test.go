// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLimitReader(t *testing.T) {
	tests := []struct {
		name  string
		in    string
		limit int64
		key   string
		want  string
		err   string
	}{
		{name: "below", in: "abc", limit: 10, want: "abc"},
		{name: "exactly full", in: "abc", limit: 3, want: "abc"},
		{name: "empty", limit: 0},
		{name: "over", in: "abcd", limit: 3, key: "max_body", want: "abc", err: "the answer is larger than the limit of 3 bytes (config key max_body)"},
		{name: "over without a key", in: "abcd", limit: 3, want: "abc", err: "the answer is larger than the limit of 3 bytes"},
		{name: "nothing allowed", in: "a", limit: 0, err: "the answer is larger than the limit of 0 bytes"},
	}
	for _, tt := range tests {
		for style, wrap := range map[string]func(io.Reader) io.Reader{
			"at once":     func(r io.Reader) io.Reader { return r },
			"by the byte": iotest.OneByteReader,
			"with EOF":    iotest.DataErrReader,
		} {
			t.Run(tt.name+" "+style, func(t *testing.T) {
				r := LimitReader(wrap(strings.NewReader(tt.in)), tt.limit, "the answer", tt.key)
				got, err := io.ReadAll(r)
				assert.Equal(t, tt.want, string(got))
				if tt.err == "" {
					require.NoError(t, err)
					return
				}
				require.EqualError(t, err, tt.err)
				_, err = r.Read(make([]byte, 1))
				require.EqualError(t, err, tt.err, "it stays")
			})
		}
	}
}

func TestLimitReaderPassesErrorsOn(t *testing.T) {
	cause := errors.New("connection reset")
	_, err := io.ReadAll(LimitReader(iotest.ErrReader(cause), 10, "the answer", ""))
	require.ErrorIs(t, err, cause)
}
