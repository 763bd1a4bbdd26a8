// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetrics

import (
	"encoding/binary"
	"math"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The structures as the kernel declares them, field for field: the tests make their
// blobs of these, and learn from them where the fields are. NUM_VCN and MAX_CLKS
// are 4, MAX_GFX_CLKS, NUM_XGMI_LINKS, NUM_XCC and NUM_XCP 8.

type header struct {
	Size            uint16
	Format, Content uint8
}

type v1x0 struct {
	Header                                  header
	SystemClockCounter                      uint64
	Edge, Hotspot, Mem, VRGfx, VRSoc, VRMem uint16
	GFX, UMC, MM                            uint16
	SocketPower                             uint16
	Energy                                  uint32
	AverageClocks, CurrentClocks            [7]uint16
	ThrottleStatus                          uint32
	FanSpeed                                uint16
	LinkWidth, LinkSpeed                    uint8
}

type v1x1 struct {
	Header                                  header
	Edge, Hotspot, Mem, VRGfx, VRSoc, VRMem uint16
	GFX, UMC, MM                            uint16
	SocketPower                             uint16
	Energy                                  uint64
	SystemClockCounter                      uint64
	AverageClocks, CurrentClocks            [7]uint16
	ThrottleStatus                          uint32
	FanSpeed, LinkWidth, LinkSpeed          uint16
	Padding                                 uint16
	GFXAcc, MemAcc                          uint32
	HBM                                     [4]uint16
}

type v1x2 struct {
	v1x1
	FirmwareTimestamp uint64
}

type v1x3 struct {
	v1x2
	VoltageSoc, VoltageGfx, VoltageMem uint16
	Padding1                           uint16
	IndepThrottleStatus                uint64
}

// pcie4 and xgmi are runs of fields that several structures have.
type pcie4 struct {
	BandwidthAcc, BandwidthInst, L0ToRecovCount, ReplayCount, ReplayRoverCount uint64
}

type nak struct{ Sent, Received uint32 }

type xgmi struct{ Read, Write [8]uint64 }

type clocks4 struct {
	GFX               [8]uint16
	Soc, VCLK0, DCLK0 [4]uint16
	UCLK              uint16
}

type v1x4 struct {
	Header                               header
	Hotspot, Mem, VRSoc                  uint16
	SocketPower                          uint16
	GFX, UMC                             uint16
	VCN                                  [4]uint16
	Energy, SystemClockCounter           uint64
	ThrottleStatus, ClockLock            uint32
	LinkWidth, LinkSpeed, XWidth, XSpeed uint16
	GFXAcc, MemAcc                       uint32
	PCIe                                 pcie4
	XGMI                                 xgmi
	FirmwareTimestamp                    uint64
	Clocks                               clocks4
	Padding                              uint16
}

type v1x5 struct {
	Header                               header
	Hotspot, Mem, VRSoc                  uint16
	SocketPower                          uint16
	GFX, UMC                             uint16
	VCN                                  [4]uint16
	JPEG                                 [32]uint16
	Energy, SystemClockCounter           uint64
	ThrottleStatus, ClockLock            uint32
	LinkWidth, LinkSpeed, XWidth, XSpeed uint16
	GFXAcc, MemAcc                       uint32
	PCIe                                 pcie4
	NAK                                  nak
	XGMI                                 xgmi
	FirmwareTimestamp                    uint64
	Clocks                               clocks4
	Padding                              uint16
}

// accumulated are the counters of v1.6 and later.
type accumulated struct {
	Cycles, Prochot, PPT, Socket, VR, HBM uint32
}

type xcp0 struct {
	GFXBusyInst [8]uint32
	JPEG        [32]uint16
	VCN         [4]uint16
	GFXBusyAcc  [8]uint64
}

type xcp1 struct {
	xcp0
	BelowHostLimit [8]uint64
}

type xcp2 struct {
	GFXBusyInst                                                  [8]uint32
	JPEG                                                         [40]uint16
	VCN                                                          [4]uint16
	GFXBusyAcc                                                   [8]uint64
	BelowLimitPPT, BelowLimitThermal, LowUtilization, BelowTotal [8]uint64
}

// v1x6early is what v1.6 was before it had the partitions.
type v1x6early struct {
	Header                               header
	Hotspot, Mem, VRSoc                  uint16
	SocketPower                          uint16
	GFX, UMC                             uint16
	Energy, SystemClockCounter           uint64
	Residency                            accumulated
	ClockLock                            uint32
	LinkWidth, LinkSpeed, XWidth, XSpeed uint16
	GFXAcc, MemAcc                       uint32
	PCIe                                 pcie4
	NAK                                  nak
	XGMI                                 xgmi
	FirmwareTimestamp                    uint64
	Clocks                               clocks4
	Partitions                           uint16
}

type v1x6 struct {
	v1x6early
	XCP           [8]xcp0
	OtherRecovery uint32
}

// v1x7head is v1.7 and v1.8 without the partitions.
type v1x7head struct {
	Header                               header
	Hotspot, Mem, VRSoc                  uint16
	SocketPower                          uint16
	GFX, UMC                             uint16
	MaxBandwidth                         uint64
	Energy, SystemClockCounter           uint64
	Residency                            accumulated
	ClockLock                            uint32
	LinkWidth, LinkSpeed, XWidth, XSpeed uint16
	GFXAcc, MemAcc                       uint32
	PCIe                                 pcie4
	NAK                                  nak
	XGMI                                 xgmi
	LinkStatus                           [8]uint16
	Padding                              uint16
	FirmwareTimestamp                    uint64
	Clocks                               clocks4
	Partitions                           uint16
}

type v1x7 struct {
	v1x7head
	XCP           [8]xcp1
	OtherRecovery uint32
}

type v1x8 struct {
	v1x7head
	XCP           [8]xcp2
	OtherRecovery uint32
}

type v2x0 struct {
	Header                        header
	SystemClockCounter            uint64
	TGFX, TSoc                    uint16
	TCore                         [8]uint16
	TL3                           [2]uint16
	GFX, MM                       uint16
	SocketPower, CPU, Soc, GFXPwr uint16
	CorePower                     [8]uint16
	AverageClocks, CurrentClocks  [6]uint16
	CoreClocks                    [8]uint16
	L3Clocks                      [2]uint16
	ThrottleStatus                uint32
	Fan, Padding                  uint16
}

type v2x1 struct {
	Header                        header
	TGFX, TSoc                    uint16
	TCore                         [8]uint16
	TL3                           [2]uint16
	GFX, MM                       uint16
	SystemClockCounter            uint64
	SocketPower, CPU, Soc, GFXPwr uint16
	CorePower                     [8]uint16
	AverageClocks, CurrentClocks  [6]uint16
	CoreClocks                    [8]uint16
	L3Clocks                      [2]uint16
	ThrottleStatus                uint32
	Fan                           uint16
	Padding                       [3]uint16
}

type v2x2 struct {
	v2x1
	IndepThrottleStatus uint64
}

type v2x3 struct {
	v2x2
	AverageTGFX, AverageTSoc uint16
	AverageTCore             [8]uint16
	AverageTL3               [2]uint16
}

type v2x4 struct {
	v2x3
	CPUVoltage, SocVoltage, GFXVoltage, CPUCurrent, SocCurrent, GFXCurrent uint16
}

type v3x0 struct {
	Header                                            header
	TGFX, TSoc                                        uint16
	TCore                                             [16]uint16
	TSkin                                             uint16
	GFX, VCN                                          uint16
	IPU                                               [8]uint16
	CoreC0                                            [16]uint16
	DRAMReads, DRAMWrites, IPUReads, IPUWrites        uint16
	SystemClockCounter                                uint64
	SocketPower                                       uint32
	IPUPower                                          uint16
	APUPower, GFXPower, DGPUPower, AllCorePower       uint32
	CorePower                                         [16]uint16
	SysPower, StapmLimit, CurrentStapmLimit           uint16
	AverageClocks                                     [8]uint16
	CoreClocks                                        [16]uint16
	CoreMaxFreq, GFXMaxFreq                           uint16
	Prochot, SPL, FPPT, SPPT, ThmCore, ThmGFX, ThmSoc uint32
	TimeFilterAlpha                                   uint32
}

// fresh is a structure as the driver has it before the firmware tells anything: all
// ones behind the header.
func fresh[T any](format, content uint8) *T {
	s := new(T)
	v := reflect.ValueOf(s).Elem()
	ones(v)
	v.FieldByName("Header").Set(reflect.ValueOf(header{uint16(size(reflect.TypeFor[T]())), format, content}))
	return s
}

func ones(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			ones(field)
		}
	case reflect.Array:
		for i := range v.Len() {
			ones(v.Index(i))
		}
	default:
		v.SetUint(math.MaxUint64 >> (64 - v.Type().Bits()))
	}
}

// alignment and size are those of C on the systems that amdgpu runs on: every
// integer lies at a multiple of its size.
func alignment(t reflect.Type) int {
	switch t.Kind() {
	case reflect.Struct:
		widest := 1
		for field := range t.Fields() {
			widest = max(widest, alignment(field.Type))
		}
		return widest
	case reflect.Array:
		return alignment(t.Elem())
	default:
		return int(t.Size())
	}
}

func size(t reflect.Type) int {
	switch t.Kind() {
	case reflect.Struct:
		end := 0
		for i := range t.NumField() {
			end = offset(t, i) + size(t.Field(i).Type)
		}
		return align(end, alignment(t))
	case reflect.Array:
		return t.Len() * size(t.Elem())
	default:
		return int(t.Size())
	}
}

func align(offset, to int) int { return (offset + to - 1) / to * to }

// offset is that of a field.
func offset(t reflect.Type, field int) int {
	end := 0
	for i := range field {
		end = align(end, alignment(t.Field(i).Type)) + size(t.Field(i).Type)
	}
	return align(end, alignment(t.Field(field).Type))
}

// bytesOf is what C has in memory for a structure.
func bytesOf(s any) []byte {
	v := reflect.Indirect(reflect.ValueOf(s))
	b := make([]byte, size(v.Type()))
	put(b, v)
	return b
}

func put(b []byte, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			put(b[offset(v.Type(), i):], v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			put(b[i*size(v.Type().Elem()):], v.Index(i))
		}
	default:
		var whole [8]byte
		binary.LittleEndian.PutUint64(whole[:], v.Uint())
		copy(b, whole[:size(v.Type())])
	}
}

func TestStructuresHaveTheSizesOfTheKernels(t *testing.T) {
	for want, s := range map[int]any{
		80: v1x0{}, 96: v1x1{}, 104: v1x2{}, 288: v1x4{}, 360: v1x5{}, 312: v1x6early{},
		1664: v1x6{}, 2208: v1x7{}, 3872: v1x8{}, 128: v2x2{}, 152: v2x3{}, 168: v2x4{}, 264: v3x0{},
	} {
		assert.Equal(t, want, size(reflect.TypeOf(s)), "%T", s)
	}
	for _, s := range []any{v1x3{}, v2x0{}, v2x1{}} {
		assert.Equal(t, 120, size(reflect.TypeOf(s)), "%T", s)
	}
}

func TestBytesOfLieWhereCHasThem(t *testing.T) {
	s := fresh[v1x3](1, 3)
	s.Hotspot, s.IndepThrottleStatus = 0x1234, 0x0102030405060708
	b := bytesOf(s)
	require.Equal(t, []byte{120, 0, 1, 3, 0xff, 0xff, 0x34, 0x12}, b[:8])
	require.Equal(t, []byte{8, 7, 6, 5, 4, 3, 2, 1}, b[112:])
}
