// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetrics

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// attr writes an attribute: the unit, which nothing depends on, the kind, the id,
// and the values, whose Go type is of the kind.
func attr(kind, id int, values ...any) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(0x5a<<24|kind<<20|id<<10|len(values)))
	for _, v := range values {
		var err error
		if b, err = binary.Append(b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return b
}

const (
	kindU8 = iota
	kindS8
	kindU16
	kindS16
	kindU32
	kindS32
	kindU64
	kindS64
	kindUnknown
)

func stream(count int32, attributes ...[]byte) []byte {
	body := slices.Concat(attributes...)
	b := binary.LittleEndian.AppendUint16(nil, uint16(8+len(body)))
	b = binary.LittleEndian.AppendUint32(append(b, 1, 9), uint32(count))
	return append(b, body...)
}

func TestAttributesAreReadInAnyOrder(t *testing.T) {
	attributes := [][]byte{
		attr(kindU16, 0, uint16(62)),
		attr(kindU16, 1, uint16(69)),
		attr(kindU16, 2, uint16(33)), // voltage regulator
		attr(kindU16, 3, uint16(411)),
		attr(kindU16, 4, uint16(100)),
		attr(kindU16, 5, uint16(43)),
		attr(kindU64, 6, uint64(8000)), // bandwidth
		attr(kindU64, 7, uint64(0x38000)),
		attr(kindU64, 1023, uint64(1), uint64(2), uint64(3)),
		attr(kindU8, 40, uint8(1), uint8(2), uint8(3)), // what follows is not aligned
		attr(kindU32, 41),                              // no instances
	}
	want := told{69.0, 62.0, nil, 100.0, 43.0, 411.0, 3.5}
	for range attributes {
		attributes = append(attributes[1:], attributes[0])
		assert.Equal(t, want, tells(decode(t, stream(int32(len(attributes)), attributes...))))
	}
	slices.Reverse(attributes)
	assert.Equal(t, want, tells(decode(t, stream(int32(len(attributes)), attributes...))))
}

func TestAnAttributeCanHaveAnyKind(t *testing.T) {
	for kind, v := range []any{
		uint8(42), int8(42), uint16(42), int16(42), uint32(42), int32(42), uint64(42), int64(42),
	} {
		m := decode(t, stream(2, attr(kind, 0, v), attr(kind, 7, v)))
		assert.Equal(t, told{junction: 42.0, energy: 42 * 0x1p-16}, tells(m), "%T", v)
	}
}

func TestAnAttributeThatIsAllOnesOrOutOfRangeIsMissing(t *testing.T) {
	for _, v := range []struct {
		kind  int
		value any
	}{
		{kindU8, uint8(math.MaxUint8)},
		{kindU16, uint16(math.MaxUint16)},
		{kindU32, uint32(math.MaxUint32)},
		{kindU64, uint64(math.MaxUint64)},
		{kindS8, int8(-1)},
		{kindS16, int16(-2)},
		{kindS32, int32(math.MinInt32)},
		{kindS64, int64(-5)},
	} {
		for _, id := range []int{0, 1, 3, 4, 5, 7} {
			b := stream(2, attr(v.kind, id, v.value), attr(kindU16, 4, uint16(7)))
			assert.Equal(t, told{gfx: 7.0}, tells(decode(t, b)), "%T %d", v.value, id)
		}
	}
	b := stream(4, attr(kindU16, 0, uint16(0)), attr(kindU16, 3, uint16(0)), attr(kindU16, 4, uint16(0)), attr(kindU16, 5, uint16(101)))
	assert.Equal(t, told{gfx: 0.0}, tells(decode(t, b)))
}

func TestTheFirstInstanceAndTheFirstAttributeThatTellsCount(t *testing.T) {
	b := stream(3,
		attr(kindU16, 0, uint16(0xffff), uint16(99)),
		attr(kindU16, 0, uint16(50), uint16(60)),
		attr(kindU16, 0, uint16(70)),
	)
	assert.Equal(t, told{junction: 50.0}, tells(decode(t, b)))
	// Without instances, what follows is not a value but the next attribute.
	b = stream(2, attr(kindU8, 5), attr(kindU8, 1, uint8(44)))
	assert.Equal(t, told{mem: 44.0}, tells(decode(t, b)))
}

func TestTheCountOfAttributesIsObeyed(t *testing.T) {
	first, second := attr(kindU16, 0, uint16(62)), attr(kindU16, 1, uint16(69))
	assert.Equal(t, told{junction: 62.0}, tells(decode(t, stream(1, first, second))))
	for _, count := range []int32{0, -1, -2, math.MinInt32} {
		assert.Equal(t, told{}, tells(decode(t, stream(count, first, second))), count)
	}
	// More than there are: all that are there.
	assert.Equal(t, told{junction: 62.0, mem: 69.0}, tells(decode(t, stream(math.MaxInt32, first, second))))
	assert.Equal(t, told{}, tells(decode(t, stream(1)[:7])))
}

func TestAStreamIsReadUpToWhatIsNotUnderstood(t *testing.T) {
	first, last := attr(kindU16, 0, uint16(62)), attr(kindU16, 1, uint16(69))
	for name, between := range map[string][]byte{
		"a kind of unknown size": attr(kindUnknown, 900, uint16(1)),
		"the highest kind":       attr(15, 900, uint16(1)),
		"data past the end":      binary.LittleEndian.AppendUint64(nil, kindU64<<20|900<<10|1023),
		"all ones":               binary.LittleEndian.AppendUint64(nil, math.MaxUint64),
	} {
		assert.Equal(t, told{junction: 62.0}, tells(decode(t, stream(3, first, between, last))), name)
	}
	whole := stream(2, first, last)
	assert.Equal(t, told{junction: 62.0}, tells(decode(t, whole[:len(whole)-1])))
	assert.Equal(t, told{junction: 62.0}, tells(decode(t, whole[:len(whole)-3])))
	assert.Equal(t, told{}, tells(decode(t, whole[:17])))
}
