// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// samplesVariable names the folder of recorded cases: one folder per family, in it
// NAME.expected.json and the input beside it.
const samplesVariable = "WANDBSYS_SAMPLES"

// sample is NAME.expected.json.
type sample struct {
	Kind  string `json:"kind"`
	Input struct {
		ExitCode   int    `json:"exit_code"`
		Stderr     string `json:"stderr"`
		StaticFile string `json:"static_file"`
	} `json:"input"`
	Tags             map[string]float64 `json:"tags"`
	ExtraTags        map[string]float64 `json:"extra_tags"`
	Pids             []int              `json:"process_pids"`
	ProcessTags      map[string]float64 `json:"process_tags"`
	ExtraProcessTags map[string]float64 `json:"extra_process_tags"`

	// stem is the path without the ending.
	stem string
}

func TestSamples(t *testing.T) {
	for _, s := range loadSamples(t) {
		t.Run(filepath.Base(s.stem), func(t *testing.T) {
			want := joined(s.Tags, s.ProcessTags)
			scraperstest.CompareTags(t, "tags", want, s.scrape(t, false))
			// With everything on, what is on by default is still the same.
			all, listed := s.scrape(t, true), joined(want, s.ExtraTags, s.ExtraProcessTags)
			maps.DeleteFunc(all, func(tag string, _ float64) bool { _, ok := listed[tag]; return !ok })
			scraperstest.CompareTags(t, "extended", listed, all)
		})
	}
}

// loadSamples skips the test where there are none.
func loadSamples(t *testing.T) []*sample {
	t.Helper()
	root := os.Getenv(samplesVariable)
	if root == "" {
		t.Skip(samplesVariable + " is not set")
	}
	files, err := filepath.Glob(filepath.Join(root, familyName, "*.expected.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []*sample
	for _, file := range files {
		s := &sample{stem: strings.TrimSuffix(file, ".expected.json")}
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(content, s), file)
		all = append(all, s)
	}
	return all
}

func joined(all ...map[string]float64) map[string]float64 {
	sum := map[string]float64{}
	for _, m := range all {
		maps.Copy(sum, m)
	}
	return sum
}

// scrape returns the tags that the scraper makes of the sample's input.
func (s *sample) scrape(t *testing.T, extended bool) map[string]float64 {
	t.Helper()
	m := scraperstest.NewMachine(t)
	cfg := &Config{Source: sourceName(s.Kind)}
	switch s.Kind {
	case "sysfs":
		writeManifest(m, s.input(t))
	case "gpu_metrics":
		cfg.Source = sourceSysfs
		writeBlobAlone(m, s.input(t))
	case "rocm-smi":
		cfg.ROCmSMIPath = s.tool(t)
	case "amd-smi":
		cfg.AMDSMIPath = s.tool(t)
	default:
		require.Fail(t, "unknown kind", s.Kind)
	}
	scraper, _ := scraperBelow(t, m.Root, extended, cfg)
	if len(s.Pids) > 0 {
		scraper.useBy(m.Root, s.Pids)
	}
	md, err := scraper.Scrape(t.Context())
	if err != nil {
		t.Logf("scrape: %v", err)
	}
	scraperstest.RequireSane(t, md)
	return scraperstest.TagsOf(md)
}

// input returns the file beside the expectations.
func (s *sample) input(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(s.inputFile(t))
	require.NoError(t, err)
	return string(content)
}

func (s *sample) inputFile(t *testing.T) string {
	t.Helper()
	for _, ending := range []string{".json", ".txt", ".hex"} {
		if _, err := os.Stat(s.stem + ending); err == nil {
			return s.stem + ending
		}
	}
	require.Fail(t, "no input", s.stem)
	return ""
}

// tool writes a program that does what the recorded one did.
func (s *sample) tool(t *testing.T) string {
	t.Helper()
	static := os.DevNull
	if s.Input.StaticFile != "" {
		static = filepath.Join(filepath.Dir(s.stem), s.Input.StaticFile)
	}
	return writeTool(t, s.Kind, s.inputFile(t), static, s.Input.Stderr, s.Input.ExitCode)
}

// writeTool writes a program that prints files: one for amd-smi's static, another
// for all other questions.
func writeTool(t testing.TB, name, out, static, stderr string, exit int) string {
	t.Helper()
	dir := t.TempDir()
	path, said := filepath.Join(dir, name), filepath.Join(dir, "stderr")
	require.NoError(t, os.WriteFile(said, []byte(stderr), 0o600))
	text := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = static ] && exec cat '%s'\ncat '%s'; cat '%s' >&2; exit %d\n", static, out, said, exit)
	// No fork while the file is open for writing: the child would inherit that,
	// and the start of the script would fail with "text file busy".
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o700))
	return path
}

// writeManifest makes the files that a manifest lists: lines of a path, a tab, and
// a text with escapes, hex:, a link's target, or the name of an error.
func writeManifest(m scraperstest.Machine, text string) {
	m.T.Helper()
	unescape := strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t")
	for line := range strings.Lines(text) {
		path, content, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		target, isLink := strings.CutPrefix(content, "-> ")
		digits, isBlob := strings.CutPrefix(content, "hex:")
		switch {
		case isLink:
			m.Link(path, target)
		case isBlob:
			m.Write(path, unhex(m.T, digits))
		case strings.HasPrefix(content, "!"):
			m.Unreadable(path)
		default:
			m.Write(path, unescape.Replace(content)+"\n")
		}
	}
}

func unhex(t testing.TB, text string) string {
	t.Helper()
	blob, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	require.NoError(t, err)
	return string(blob)
}

// writeBlobAlone makes a GPU that has nothing but its gpu_metrics.
func writeBlobAlone(m scraperstest.Machine, digits string) {
	m.T.Helper()
	const device = "sys/devices/pci0000:00/0000:05:00.0/"
	m.Write(device+"vendor", "0x1002\n")
	m.Write(device+"uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:05:00.0\n")
	m.Write(device+"gpu_metrics", unhex(m.T, digits))
	m.Link(device+"drm/card0/device", "../../../0000:05:00.0")
	m.Link("sys/class/drm/card0", "../../devices/pci0000:00/0000:05:00.0/drm/card0")
}

// useBy makes some pids one workload.
func (s *gpuScraper) useBy(root string, pids []int) {
	sys := s.source.(*firstSource).order[0].source.(*sysfs)
	s.owners, s.want.processes = &pidOwners{sys, root, pids}, true
}

// pidOwners takes some pids for one workload.
type pidOwners struct {
	sysfs *sysfs
	root  string
	pids  []int
}

// of implements owners.
func (o *pidOwners) of(ctx context.Context, r *reading) ([]user, error) {
	kfd, err := o.sysfs.kfdProcesses(ctx)
	if err != nil {
		return nil, err
	}
	use := &usage{devices: o.sysfs.devices, kfd: kfd, clients: map[int][]drmClient{}}
	for _, pid := range o.pids {
		// One that cannot be looked into has none.
		use.clients[pid], _ = clientsOf(filepath.Join(o.root, "proc", strconv.Itoa(pid)))
	}
	return []user{{who: &identity.Workload{}, gpus: use.of(o.pids, r)}}, nil
}
