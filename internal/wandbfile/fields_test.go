// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfile_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbpb"
)

// filler gives each field a value of its own.
type filler struct{ used int64 }

func (f *filler) fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch fd := fields.Get(i); {
		case fd.IsMap():
			for range 2 {
				m.Mutable(fd).Map().Set(f.scalar(fd.MapKey()).MapKey(), f.scalar(fd.MapValue()))
			}
		case fd.IsList():
			f.list(m.Mutable(fd).List(), fd)
		case fd.Message() != nil:
			f.fill(m.Mutable(fd).Message())
		default:
			m.Set(fd, f.scalar(fd))
		}
	}
}

func (f *filler) list(l protoreflect.List, fd protoreflect.FieldDescriptor) {
	for range 2 {
		if fd.Message() != nil {
			f.fill(l.AppendMutable().Message())
			continue
		}
		l.Append(f.scalar(fd))
	}
}

func (f *filler) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	f.used++
	switch kind := fd.Kind(); kind {
	case protoreflect.StringKind:
		if fd.Name() == "value_json" {
			return protoreflect.ValueOfString(strconv.FormatInt(f.used, 10))
		}
		return protoreflect.ValueOfString(fmt.Sprintf("%s-%d", fd.Name(), f.used))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(f.used))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(f.used)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(f.used))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(f.used))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(0)
	default:
		panic(fmt.Sprintf("%s is of kind %s", fd.FullName(), kind))
	}
}

func TestEveryFieldComesBack(t *testing.T) {
	kinds := (&wandbpb.Record{}).ProtoReflect().Descriptor().Oneofs().ByName("record_type").Fields()
	inOrder := []protoreflect.Name{"header", "run", "environment", "stats", "exit"}
	require.Len(t, inOrder, kinds.Len())
	l, f := &log{}, &filler{}
	l.writer = wandbfile.NewWriter(&l.data)
	for _, name := range inOrder {
		r := &wandbpb.Record{}
		f.fill(r.ProtoReflect().Mutable(kinds.ByName(name)).Message())
		l.add(t, r)
	}
	require.Greater(t, f.used, int64(50))
	l.parse(t)
}

func TestExtremeValuesComeBack(t *testing.T) {
	text := "\x00\n\"\\\u2028\ufffd\U0010ffff äöü"
	l := &log{}
	l.writer = wandbfile.NewWriter(&l.data)
	h, r := header(), run()
	h.GetHeader().VersionInfo = &wandbpb.VersionInfo{}
	r.GetRun().StartTime = &timestamppb.Timestamp{Seconds: 253402300799, Nanos: 999999999}
	r.GetRun().Notes, r.GetRun().Tags = text, []string{"", text, ""}
	r.GetRun().Config = &wandbpb.ConfigRecord{Update: []*wandbpb.Item{{Key: text, ValueJson: `{"a":null}`}, {ValueJson: "0"}}}
	l.add(t, h, r, &wandbpb.Record{RecordType: &wandbpb.Record_Environment{Environment: &wandbpb.EnvironmentRecord{
		StartedAt: &timestamppb.Timestamp{Seconds: -1, Nanos: 1},
		CpuCount:  math.MaxUint32,
		Memory:    &wandbpb.MemoryInfo{Total: math.MaxUint64},
		Apple:     &wandbpb.AppleInfo{},
		GpuNvidia: []*wandbpb.NvidiaInfo{{}, {Uuid: text}},
		GpuAmd:    []*wandbpb.AMDInfo{{}},
		Slurm:     map[string]string{"": "", text: text},
	}}})
	s := stats(1, "-0", "1.7976931348623157e+308", "5e-324")
	s.GetStats().Item[1].Key = text
	l.add(t, stats(1), s)
	l.add(t, &wandbpb.Record{RecordType: &wandbpb.Record_Exit{Exit: &wandbpb.RunExitRecord{ExitCode: math.MinInt32, Runtime: math.MaxInt32}}})
	l.parse(t)
}
