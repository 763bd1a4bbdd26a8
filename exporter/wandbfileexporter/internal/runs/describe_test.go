// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/template"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

// described writes a run of a subject and returns its first records.
func described(t *testing.T, subject *Subject, change func(*Options)) (*wandbfiletest.Run, *wandbfiletest.Environment) {
	t.Helper()
	p := newPlace(t, change)
	p.write(subject, at(0, value("n", 1)))
	f := p.read()[0]
	return runOf(t, f), f.Records[2].Environment
}

func TestARunIsDescribedByItsAttributes(t *testing.T) {
	run, _ := described(t, host("node-1", "team", "vision", "slurm.job.id", 77, "wandb.label", "x"), func(o *Options) {
		o.Names.Entity = tmpl("{team}")
		o.Names.Project = tmpl("{team}/{host.name}")
		o.Names.Group = tmpl("{slurm.job.id|host.name}")
		o.Names.JobType = tmpl("{wandbsys.workload.kind|'host'}")
		o.Names.DisplayName = tmpl("{service.instance.id|host.name}")
		o.Names.Notes = tmpl("of {host.name}: {{}}")
		o.Names.Tags = []template.Template{
			tmpl("wandbsys"), tmpl("{team}"), tmpl("{missing}"),
			tmpl("{'vision'}"), tmpl(" {team} "),
		}
	})
	assert.Regexp(t, `^[a-z0-9]{12}$`, run.ID)
	run.ID = ""
	assert.Equal(t, &wandbfiletest.Run{
		Entity: "vision", Project: "vision-node-1", Group: "77", JobType: "host", DisplayName: "node-1",
		Notes: "of node-1: {}", Tags: []string{"wandbsys", "vision"}, Host: "node-1", StartTime: noon,
		Config: []wandbfiletest.Item{
			{Key: "host.name", Value: `"node-1"`},
			{Key: "slurm.job.id", Value: `77`},
			{Key: "team", Value: `"vision"`},
			{Key: "wandb.label", Value: `"x"`},
		},
	}, run)
}

func TestTheEnvironmentIsThatOfTheAttributes(t *testing.T) {
	subject := host("node-1", "os.type", "linux", "wandb.cpu_count", 32, "wandb.cpu_count_logical", "64",
		"wandb.gpu_type", "H100", "wandb.gpu_count", 2, "wandb.cuda_version", "12.4", "wandb.memory_total", int64(1)<<41,
		"slurm.job.id", "77", "slurm.job.name", "train\n1", "slurm.step.id", 0)
	subject.GPUs = []GPU{
		{Vendor: "nvidia", Index: "0", UUID: "GPU-1", Model: "NVIDIA H100"},
		{Vendor: "nvidia", Index: "1", UUID: "GPU-2", Model: "NVIDIA H100"},
		{Vendor: "amd", Index: "2", UUID: "0x77", Model: "MI300X"},
		{Vendor: "apple", Index: "0", Model: "Apple M4"},
		{Vendor: "other", Index: "0", Model: "other"},
	}
	_, e := described(t, subject, func(*Options) {})
	assert.Equal(t, &wandbfiletest.Environment{
		OS: "linux", StartedAt: noon, Host: "node-1", CPUCount: 32, CPUCountLogical: 64, GPUType: "H100", GPUCount: 2,
		Memory: &wandbfiletest.Memory{Total: 1 << 41}, CUDAVersion: "12.4",
		Apple:     &wandbfiletest.Apple{Name: "Apple M4"},
		GPUNvidia: []wandbfiletest.NvidiaGPU{{Name: "NVIDIA H100", UUID: "GPU-1"}, {Name: "NVIDIA H100", UUID: "GPU-2"}},
		GPUAMD:    []wandbfiletest.AMDGPU{{ID: "2", UniqueID: "0x77", Model: "MI300X", Vendor: "AMD"}},
		Slurm:     map[string]string{"job_id": "77", "job_name": "train 1", "step_id": "0"},
	}, e)
}

func TestNumbersThatAreNoneAreUnknown(t *testing.T) {
	for _, text := range []any{"many", "-1", -1, 1.5, "", "99999999999999999999999", nil, []any{1}} {
		_, e := described(t, host("a", "wandb.cpu_count", text, "wandb.gpu_count", text, "wandb.memory_total", text), func(*Options) {})
		assert.Equal(t, &wandbfiletest.Environment{StartedAt: noon, Host: "a"}, e, "%v", text)
	}
}

func TestTextsAreCleaned(t *testing.T) {
	for name, test := range map[string]struct {
		text  string
		limit int
		want  string
	}{
		"clean":               {"Größe 7 €", 20, "Größe 7 €"},
		"empty":               {"", 20, ""},
		"invalid":             {"a\xff\xfeb\xc3", 20, "a\ufffdb\ufffd"},
		"control characters":  {"a\nb\tc\x00d\x7fe\u0085f", 20, "a b c d e f"},
		"blanks":              {"  a b\n", 20, "a b"},
		"only blanks":         {" \n\t ", 20, ""},
		"as long as it may":   {"€€€", 3, "€€€"},
		"too long":            {"€€€€", 3, "€€€"},
		"a blank at the end":  {"ab cd", 3, "ab"},
		"half a character":    {"ab€"[:4], 20, "ab\ufffd"},
		"a surrogate in UTF8": {"\xed\xa0\x80", 20, "\ufffd"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, clean(test.text, test.limit)) })
	}
}

func TestLongTextsAreCut(t *testing.T) {
	long := strings.Repeat("ä", 10_000)
	run, e := described(t, host("a", "long", long, "host.name", long, "os.type", long), func(o *Options) {
		whole := tmpl("{long}")
		o.Names.Entity, o.Names.Project, o.Names.Group, o.Names.JobType, o.Names.DisplayName, o.Names.Notes = whole, whole, whole, whole, whole, whole
		for i := range 100 {
			o.Names.Tags = append(o.Names.Tags, tmpl(fmt.Sprint(i, "{long}")))
		}
	})
	for text, limit := range map[*string]int{
		&run.Entity: maxName, &run.Project: maxName, &run.Group: maxName, &run.JobType: maxName,
		&run.DisplayName: maxName, &run.Host: maxName, &e.Host: maxName, &e.OS: maxName, &run.Notes: maxNotes,
	} {
		assert.Equal(t, strings.Repeat("ä", limit), *text)
	}
	assert.Len(t, run.Tags, maxTags)
	assert.Equal(t, maxTag, utf8.RuneCountInString(run.Tags[9]))
	assert.Empty(t, run.Config, "what nobody would read is left out")
}

func TestNamesOfProjectsHaveNoMarks(t *testing.T) {
	run, _ := described(t, host("a", "x", `a/b\c#d?e%f:g`), func(o *Options) {
		o.Names.Entity, o.Names.Project = tmpl("{x}"), tmpl("{x}{x}")
		o.Names.DisplayName = tmpl("{x}")
	})
	assert.Equal(t, "a-b-c-d-e-f-g", run.Entity)
	assert.Equal(t, "a-b-c-d-e-f-ga-b-c-d-e-f-g", run.Project)
	assert.Equal(t, `a/b\c#d?e%f:g`, run.DisplayName)
}

func TestTheConfigIsJSON(t *testing.T) {
	subject := host("a",
		"z bool", true, "int", int64(math.MaxInt64), "float", 0.1, "list", []any{"a", 1, nil}, "map", map[string]any{"b": 2, "\xff": "\xff"},
		"bytes", []byte{1, 2}, "empty", nil, "text", "a\"\n\xff", "\x00bad\xff ", "x", " \n", "no key",
		"nan", math.NaN(), "inf", []any{math.Inf(1)}, "long", strings.Repeat("x", maxConfigValue))
	run, _ := described(t, subject, func(*Options) {})
	got := map[string]any{}
	var keys []string
	for _, it := range run.Config {
		var v any
		require.NoError(t, json.Unmarshal([]byte(it.Value), &v))
		got[it.Key] = v
		keys = append(keys, it.Key)
	}
	assert.True(t, slices.IsSorted(keys), "%q", keys)
	assert.Equal(t, map[string]any{
		"host.name": "a", "z bool": true, "int": float64(math.MaxInt64), "float": 0.1, "list": []any{"a", 1.0, nil},
		"map": map[string]any{"b": 2.0, "\ufffd": "\ufffd"}, "bytes": "AQI=", "empty": nil, "text": "a\"\n\ufffd", "bad\ufffd": "x",
	}, got)
}

func TestTheConfigIsBounded(t *testing.T) {
	subject := host("a")
	for i := range 2 * maxConfig {
		subject.Attributes.PutInt(fmt.Sprint("k", i), 1)
	}
	run, _ := described(t, subject, func(*Options) {})
	assert.Len(t, run.Config, maxConfig)
}

// TestKeysOfTheConfigAreThereOnce has two attributes whose keys differ in what is cleaned.
func TestKeysOfTheConfigAreThereOnce(t *testing.T) {
	run, _ := described(t, host("a", "key", 1, "key\n", 2), func(*Options) {})
	assert.Equal(t, []wandbfiletest.Item{{Key: "host.name", Value: `"a"`}, {Key: "key", Value: "1"}}, run.Config)
}

func FuzzDescribe(f *testing.F) {
	f.Add("host.name", "node-1", "{host.name}", "nvidia", "wandbsys")
	f.Add("../../etc", "../../../passwd", "{../../etc}/{host.name}", "amd", "../..")
	f.Add("\xff\x00", "\xed\xa0\x80\n", "{{\xff}}{'\x00'|\xff}", "apple", "\u2028\u202e")
	f.Add("slurm.job.id", strings.Repeat("ä", 70), strings.Repeat("{slurm.job.id}", 2), "", " ")
	f.Fuzz(func(t *testing.T, key, text, pattern, vendor, name string) {
		filled, err := template.Parse(pattern)
		if err != nil {
			t.Skip("no template")
		}
		parent := t.TempDir()
		p := newPlace(t, in(filepath.Join(parent, "wandb")), func(o *Options) {
			o.Names.Entity, o.Names.Project, o.Names.Group, o.Names.JobType, o.Names.DisplayName, o.Names.Notes = filled, filled, filled, filled, filled, filled
			o.Names.Tags = []template.Template{filled, tmpl("{host.name}"), filled}
		})
		subject := host(name, key, text)
		for _, a := range []string{"os.type", "wandb.gpu_type", "wandb.cpu_count", "wandb.memory_total", "slurm.job.id", "slurm.job.name"} {
			subject.Attributes.PutStr(a, text)
		}
		subject.GPUs = []GPU{{Vendor: vendor, Index: text, UUID: name, Model: key}, {Vendor: "amd", Index: key, UUID: text, Model: name}}
		require.NoError(t, p.Write(subject, at(0, value("n", 1))))
		require.NoError(t, p.Close())

		run := runOf(t, p.read()[0]) // the reader refuses what is not UTF-8, and config that is no JSON
		texts := append([]string{run.Entity, run.Project, run.Group, run.JobType, run.DisplayName, run.Host}, run.Tags...)
		for _, s := range texts {
			assert.LessOrEqual(t, utf8.RuneCountInString(s), maxName)
			assert.Equal(t, strings.TrimSpace(s), s)
			assert.False(t, strings.ContainsFunc(s, unicode.IsControl), "%q", s)
		}
		assert.False(t, strings.ContainsAny(run.Entity+run.Project, notInNames))
		assert.Len(t, slices.Compact(slices.Sorted(slices.Values(run.Tags))), len(run.Tags))

		outside, err := os.ReadDir(parent)
		require.NoError(t, err)
		assert.Len(t, outside, 1)
		inside, err := os.ReadDir(p.Directory)
		require.NoError(t, err)
		for _, entry := range inside {
			if entry.Name() != "latest-run" {
				assert.Regexp(t, folderForm, entry.Name())
			}
		}
		assert.Len(t, inside, 2)
	})
}
