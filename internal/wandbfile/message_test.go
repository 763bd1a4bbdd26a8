// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfile_test

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbpb"
)

// message is the record that was read.
func message(r *wandbfiletest.Record) *wandbpb.Record {
	m := &wandbpb.Record{Num: r.Num}
	switch {
	case r.Header != nil:
		version := &wandbpb.VersionInfo{Producer: r.Header.Producer, MinConsumer: r.Header.MinConsumer}
		m.RecordType = &wandbpb.Record_Header{Header: &wandbpb.HeaderRecord{VersionInfo: version}}
	case r.Run != nil:
		m.RecordType = &wandbpb.Record_Run{Run: runMessage(r.Run)}
	case r.Environment != nil:
		m.RecordType = &wandbpb.Record_Environment{Environment: environmentMessage(r.Environment)}
	case r.Stats != nil:
		s := &wandbpb.StatsRecord{StatsType: wandbpb.StatsRecord_StatsType(r.Stats.Type), Timestamp: stamp(r.Stats.Timestamp), Item: items(r.Stats.Items)}
		m.RecordType = &wandbpb.Record_Stats{Stats: s}
	case r.Exit != nil:
		m.RecordType = &wandbpb.Record_Exit{Exit: &wandbpb.RunExitRecord{ExitCode: r.Exit.Code, Runtime: r.Exit.Runtime}}
	}
	return m
}

func runMessage(r *wandbfiletest.Run) *wandbpb.RunRecord {
	m := &wandbpb.RunRecord{
		RunId: r.ID, Entity: r.Entity, Project: r.Project, RunGroup: r.Group, JobType: r.JobType,
		DisplayName: r.DisplayName, Notes: r.Notes, Tags: r.Tags, Host: r.Host, StartTime: stamp(r.StartTime),
	}
	if r.Config != nil {
		m.Config = &wandbpb.ConfigRecord{Update: items(r.Config)}
	}
	return m
}

func environmentMessage(e *wandbfiletest.Environment) *wandbpb.EnvironmentRecord {
	m := &wandbpb.EnvironmentRecord{
		Os: e.OS, StartedAt: stamp(e.StartedAt), Host: e.Host, CpuCount: e.CPUCount, CpuCountLogical: e.CPUCountLogical,
		GpuType: e.GPUType, GpuCount: e.GPUCount, CudaVersion: e.CUDAVersion, Slurm: e.Slurm,
	}
	if e.Memory != nil {
		m.Memory = &wandbpb.MemoryInfo{Total: e.Memory.Total}
	}
	if e.Apple != nil {
		m.Apple = &wandbpb.AppleInfo{Name: e.Apple.Name}
	}
	for _, g := range e.GPUNvidia {
		m.GpuNvidia = append(m.GpuNvidia, &wandbpb.NvidiaInfo{Name: g.Name, Uuid: g.UUID})
	}
	for _, g := range e.GPUAMD {
		m.GpuAmd = append(m.GpuAmd, &wandbpb.AMDInfo{Id: g.ID, UniqueId: g.UniqueID, Model: g.Model, Vendor: g.Vendor})
	}
	return m
}

func items(read []wandbfiletest.Item) []*wandbpb.Item {
	var all []*wandbpb.Item
	for _, i := range read {
		all = append(all, &wandbpb.Item{Key: i.Key, ValueJson: i.Value})
	}
	return all
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
