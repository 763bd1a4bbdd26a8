// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseNSpid(t *testing.T) {
	tests := []struct {
		name, status string
		want         []int
		wantErr      string
	}{
		{name: "the reader's own namespace", status: "Name:\tx\nNStgid:\t7\nNSpid:\t12\nNSpgid:\t1\n", want: []int{12}},
		{name: "nested", status: "NSpid:\t220100\t40 17\n", want: []int{220100, 40, 17}},
		{name: "without the line", status: "Name:\tx\nPid:\t12\n"},
		{name: "no pid in the line", status: "NSpid:\n"},
		{name: "no number", status: "Name:\tx\nNSpid:\t12\tx\n", want: []int{12}, wantErr: `status: line 2 not understood: "NSpid:\t12\tx"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseNSpid(nil, []byte(tt.status))
			assert.Equal(t, tt.want, got)
			if tt.wantErr != "" {
				assert.EqualError(t, err, tt.wantErr)
				return
			}
			assert.NoError(t, err)
		})
	}
}

func FuzzParseNSpid(f *testing.F) {
	f.Add([]byte("NSpid:\t220100\t17\n"))
	f.Add([]byte("Name:\tx\nNSpid:\t12 x\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _ := ParseNSpid(nil, b)
		for _, pid := range got {
			assert.GreaterOrEqual(t, pid, 0)
		}
	})
}
