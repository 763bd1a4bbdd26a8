// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetrics

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

func FuzzDecode(f *testing.F) {
	for _, r := range revisions() {
		b := bytesOf(r.structure)
		f.Add(b, uint16(len(b)/2))
		f.Add(b[:len(b)*2/3], uint16(20))
		for i := range b[4:] {
			b[4+i] = byte(i % 7)
		}
		f.Add(b, uint16(100))
	}
	f.Add(stream(3,
		attr(kindU16, idMemory, uint16(69)), attr(kindS32, 9, int32(-7), int32(7)), attr(kindU64, idEnergy, uint64(1<<40)),
	), uint16(21))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		var whole, part Metrics
		if !requirePossible(t, b, &whole) {
			return
		}
		if int(cut) > len(b) || !requirePossible(t, b[:cut], &part) {
			return
		}
		requirePart(t, &part, &whole)
	})
}

// requirePossible decodes, and wants what can be; it tells whether there is
// anything.
func requirePossible(t *testing.T, b []byte, m *Metrics) bool {
	t.Helper()
	err := Decode(b, m)
	if len(b) < headerSize {
		require.ErrorIs(t, err, ErrShort)
		require.Equal(t, Metrics{}, *m)
		return false
	}
	require.Equal(t, Metrics{Format: b[2], Content: b[3], Size: int(b[0]) | int(b[1])<<8}, Metrics{Format: m.Format, Content: m.Content, Size: m.Size})
	if err != nil {
		require.Equal(t, &UnknownError{b[2], b[3]}, err)
		require.Equal(t, Metrics{Format: m.Format, Content: m.Content, Size: m.Size}, *m)
		return false
	}
	for _, temperature := range m.Temperatures {
		requireBetween(t, temperature, 0, 200)
	}
	for _, percent := range []card.Float{m.GFX, m.UMC} {
		requireBetween(t, percent, -1e-9, 100+1e-9)
	}
	requireBetween(t, m.Power, 0, 10_000)
	requireBetween(t, m.Energy, 0, 0x1p48+1)
	if m.IsAPU() {
		require.False(t, m.UMC.Known || m.Energy.Known || m.Temperatures[card.Mem].Known)
	}
	return true
}

func requireBetween(t *testing.T, f card.Float, low, high float64) {
	t.Helper()
	if f.Known {
		require.Greater(t, f.Value, low)
		require.Less(t, f.Value, high)
	}
}

// requirePart wants all that the beginning of a file tells to be what the file
// tells.
func requirePart(t *testing.T, part, whole *Metrics) {
	t.Helper()
	for i := range part.Temperatures {
		requireSame(t, part.Temperatures[i], whole.Temperatures[i])
	}
	requireSame(t, part.GFX, whole.GFX)
	requireSame(t, part.UMC, whole.UMC)
	requireSame(t, part.Power, whole.Power)
	requireSame(t, part.Energy, whole.Energy)
	for i := range part.Throttles {
		requireSame(t, part.Throttles[i], whole.Throttles[i])
	}
	requireSame(t, part.Residency.Cycles, whole.Residency.Cycles)
	requireSame(t, part.Residency.Prochot, whole.Residency.Prochot)
	requireSame(t, part.Residency.Power, whole.Residency.Power)
	requireSame(t, part.Residency.Socket, whole.Residency.Socket)
	requireSame(t, part.Residency.Regulator, whole.Residency.Regulator)
	requireSame(t, part.Residency.Memory, whole.Residency.Memory)
}

func requireSame[T any](t *testing.T, part, whole optional.Of[T]) {
	t.Helper()
	if part.Known {
		require.Equal(t, whole, part)
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	blobs := [][]byte{stream(2, attr(kindU16, idMemory, uint16(69)), attr(kindU64, idEnergy, uint64(1<<40)))}
	for _, r := range revisions() {
		blobs = append(blobs, bytesOf(r.structure))
	}
	var m, before Metrics
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for _, b := range blobs {
			if err := Decode(b, &m); err != nil {
				panic(err)
			}
			Throttled(&before.Residency, &m.Residency)
			before = m
		}
	}))
}

func BenchmarkDecode(b *testing.B) {
	attributes := [][]byte{}
	for id := range 47 {
		attributes = append(attributes, attr(kindU16, id, uint16(50), uint16(50)))
	}
	cases := map[string][]byte{"v1.9": stream(47, attributes...)}
	for _, r := range revisions() {
		if r.name == "1.3" || r.name == "1.8" || r.name == "3.0" {
			cases["v"+r.name] = bytesOf(r.structure)
		}
	}
	for name, blob := range cases {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var m Metrics
			for b.Loop() {
				if err := Decode(blob, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
