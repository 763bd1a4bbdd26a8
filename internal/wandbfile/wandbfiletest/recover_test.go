// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfiletest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

// nums are the numbers of records.
func nums(records []Record) []int64 {
	var n []int64
	for _, r := range records {
		n = append(n, r.Num)
	}
	return n
}

func TestRecoverGoesOnInTheNextBlock(t *testing.T) {
	// Records 1 to 4 are in the first block, 5 in two, 6 and 7 in the second.
	build := func() *file { return begun().add(gpu(3)).fill(t, 4, 20).add(gpu(5), gpu(6), exit(7)) }
	whole := build()
	for name, test := range map[string]struct {
		at   int
		to   byte
		want []int64
	}{
		"nothing is wrong":            {0, ':', []int64{1, 2, 3, 4, 5, 6, 7}},
		"checksum":                    {whole.ends[1], ^whole.data[whole.ends[1]], []int64{1, 2, 6, 7}},
		"payload":                     {whole.ends[1] + 9, 0xff, []int64{1, 2, 6, 7}},
		"length within the block":     {whole.ends[1] + 4, 0, []int64{1, 2, 6, 7}},
		"length beyond the block":     {whole.ends[1] + 5, 0xff, []int64{1, 2, 6, 7}},
		"chunk type":                  {whole.ends[1] + 6, 7, []int64{1, 2, 6, 7}},
		"first chunk of two":          {whole.ends[3] + 8, 0xff, []int64{1, 2, 3, 4, 6, 7}},
		"second chunk of two":         {32768 + 8, 0xff, []int64{1, 2, 3, 4}},
		"last record":                 {len(whole.data) - 1, 0xff, []int64{1, 2, 3, 4, 5, 6}},
		"the file's header":           {0, ';', nil},
		"filling is not looked at":    {6, 0, []int64{1, 2, 3, 4, 5, 6, 7}},
		"a length in the second rest": {whole.ends[5] + 5, 1, []int64{1, 2, 3, 4, 5, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			f := build()
			f.data[test.at] = test.to
			assert.Equal(t, test.want, nums(Recover(f.data)))
		})
	}
}

func TestRecoverLeavesOutWhatIsNoRecord(t *testing.T) {
	for name, test := range map[string]struct {
		file *file
		want []int64
	}{
		"middle and last without first": {begun().chunk(3, gpu(3)).chunk(4, gpu(3)).add(gpu(4)), []int64{1, 2, 4}},
		"first without last":            {begun().chunk(2, gpu(3)).add(gpu(4)), []int64{1, 2, 4}},
		"content that Parse rejects":    {begun().add(stats(3, item("k", "NaN")), gpu(4)), []int64{1, 2, 4}},
		"order is not looked at":        {newFile().add(gpu(9), exit(4), run(4)), []int64{9, 4, 4}},
		"a block of zeros":              {&file{data: append(newFile().data, make([]byte, 32761)...)}, nil},
		"records after zeros":           {(&file{data: append(begun().data, make([]byte, begun().room())...)}).add(gpu(3)), []int64{1, 2, 3}},
		"filling that is not zeros": {func() *file {
			f := begun().fill(t, 3, 6).add(gpu(4))
			f.data[32767] = 1
			return f
		}(), []int64{1, 2, 3, 4}},
		"nothing": {&file{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, nums(Recover(test.file.data)))
		})
	}
}

func TestRecoverSurvivesAnyByte(t *testing.T) {
	whole := begun().add(gpu(3), exit(4)).data
	for at := range whole {
		data := bytes.Clone(whole)
		data[at] ^= 0x55
		_, err := Parse(data)
		got := Recover(data)
		assert.True(t, err != nil || len(got) < 4, "byte %d is not looked at", at)
	}
}
