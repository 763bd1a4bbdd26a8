// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/template"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbpb"
)

// Limits of texts, in characters. W&B refuses longer names and tags.
const (
	maxName  = 128
	maxTag   = 64
	maxNotes = 4096
	maxTags  = 64
	// maxConfig bounds the attributes that become the run's configuration.
	maxConfig      = 256
	maxConfigValue = 1024
)

// notInNames are characters that W&B has no use for in the names of projects and entities.
const notInNames = `/\#?%:`

// Subject is what a run is about: a machine or a workload.
type Subject struct {
	// Key tells subjects apart.
	Key string
	// Workload says that it is none of the machines.
	Workload bool
	// Attributes are those of the resource; they must not be changed.
	Attributes pcommon.Map
	// GPUs are those that its points name.
	GPUs []GPU
}

// GPU is what the attributes of points tell of a GPU.
type GPU struct {
	Vendor, Index, UUID, Model string
}

// texts returns the attributes as texts.
func (s *Subject) texts() map[string]string {
	texts := make(map[string]string, s.Attributes.Len())
	for key, value := range s.Attributes.All() {
		texts[key] = value.AsString()
	}
	return texts
}

// runRecord describes a run; attrs are the texts of its subject. All texts in it are valid UTF-8, as protobuf wants.
func (s *Store) runRecord(subject *Subject, attrs map[string]string, id string, start time.Time) *wandbpb.RunRecord {
	fill := func(t template.Template, limit int) string { return clean(t.Render(attrs), limit) }
	r := &wandbpb.RunRecord{
		RunId:       id,
		Entity:      name(fill(s.Names.Entity, maxName)),
		Project:     name(fill(s.Names.Project, maxName)),
		RunGroup:    fill(s.Names.Group, maxName),
		JobType:     fill(s.Names.JobType, maxName),
		DisplayName: fill(s.Names.DisplayName, maxName),
		Notes:       fill(s.Names.Notes, maxNotes),
		Host:        clean(attrs["host.name"], maxName),
		StartTime:   timestamppb.New(start),
		Config:      &wandbpb.ConfigRecord{},
	}
	for _, t := range s.Names.Tags {
		tag := fill(t, maxTag)
		if tag != "" && !slices.Contains(r.Tags, tag) && len(r.Tags) < maxTags {
			r.Tags = append(r.Tags, tag)
		}
	}
	for key, value := range subject.Attributes.All() {
		if item := configItem(key, value); item != nil && len(r.Config.Update) < maxConfig {
			r.Config.Update = append(r.Config.Update, item)
		}
	}
	slices.SortStableFunc(r.Config.Update, func(a, b *wandbpb.Item) int { return strings.Compare(a.Key, b.Key) })
	r.Config.Update = slices.CompactFunc(r.Config.Update, func(a, b *wandbpb.Item) bool { return a.Key == b.Key })
	return r
}

// configItem is nil for what JSON cannot say, and for what nobody would read.
func configItem(key string, value pcommon.Value) *wandbpb.Item {
	text, err := json.Marshal(value.AsRaw())
	if key = clean(key, maxName); key == "" || err != nil || len(text) > maxConfigValue {
		return nil
	}
	return &wandbpb.Item{Key: key, ValueJson: string(text)}
}

// clean makes a text of one line with at most so many characters, in valid UTF-8.
func clean(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
	text = strings.TrimSpace(text)
	n := 0
	for i := range text {
		if n == limit {
			return strings.TrimSpace(text[:i])
		}
		n++
	}
	return text
}

func name(text string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(notInNames, r) {
			return '-'
		}
		return r
	}, text)
}

// slurmVariables are W&B's names of what Slurm says, and ours.
var slurmVariables = map[string]string{
	"job_id":   "slurm.job.id",
	"job_name": "slurm.job.name",
	"step_id":  "slurm.step.id",
}

// environment describes the machine, as far as its resource and its points tell.
func environment(attrs map[string]string, gpus []GPU, start time.Time) *wandbpb.EnvironmentRecord {
	text := func(key string) string { return clean(attrs[key], maxName) }
	e := &wandbpb.EnvironmentRecord{
		Os:              text("os.type"),
		StartedAt:       timestamppb.New(start),
		Host:            text("host.name"),
		CpuCount:        count(attrs["wandb.cpu_count"]),
		CpuCountLogical: count(attrs["wandb.cpu_count_logical"]),
		GpuType:         text("wandb.gpu_type"),
		GpuCount:        count(attrs["wandb.gpu_count"]),
		CudaVersion:     text("wandb.cuda_version"),
	}
	if total, err := strconv.ParseUint(attrs["wandb.memory_total"], 10, 64); err == nil && total > 0 {
		e.Memory = &wandbpb.MemoryInfo{Total: total}
	}
	for _, g := range gpus {
		addGPU(e, g)
	}
	for key, attribute := range slurmVariables {
		if value := text(attribute); value != "" {
			if e.Slurm == nil {
				e.Slurm = map[string]string{}
			}
			e.Slurm[key] = value
		}
	}
	return e
}

// count is 0, which means unknown, for what is no number.
func count(text string) uint32 {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

func addGPU(e *wandbpb.EnvironmentRecord, g GPU) {
	model, uuid := clean(g.Model, maxName), clean(g.UUID, maxName)
	switch g.Vendor {
	case "nvidia":
		e.GpuNvidia = append(e.GpuNvidia, &wandbpb.NvidiaInfo{Name: model, Uuid: uuid})
	case "amd":
		e.GpuAmd = append(e.GpuAmd, &wandbpb.AMDInfo{Id: clean(g.Index, maxName), UniqueId: uuid, Model: model, Vendor: "AMD"})
	case "apple":
		e.Apple = &wandbpb.AppleInfo{Name: model}
	}
}
