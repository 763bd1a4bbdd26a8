// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package ipu

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// samplesVariable names the folder of recorded cases: one folder per family, in it
// NAME.expected.json and the input beside it.
const samplesVariable = "WANDBSYS_SAMPLES"

// sample is NAME.expected.json.
type sample struct {
	Config struct {
		Pid int `json:"pid"`
		// ProcessTree is the pid and its descendants.
		ProcessTree []int `json:"process_tree"`
	} `json:"config"`
	Tags   map[string]float64 `json:"tags"`
	Extras map[string]float64 `json:"extras"`

	// stem is the path without the ending, of which the last part says what printed
	// the input.
	stem string
}

// step is a run of a tool.
type step struct {
	Argv           []string `json:"argv"`
	Exit           int      `json:"exit"`
	Stdout, Stderr string
	Error          string `json:"error"`
	TimedOut       bool   `json:"timed_out"`
}

func TestSamples(t *testing.T) {
	for _, s := range loadSamples(t) {
		t.Run(filepath.Base(s.stem), func(t *testing.T) {
			scraperstest.CompareTags(t, "tags", s.Tags, s.scrape(t, false))
			// With everything on, what is on by default is still the same.
			listed := maps.Clone(s.Tags)
			maps.Copy(listed, s.Extras)
			all := s.scrape(t, true)
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
		s := &sample{stem: strings.TrimSuffix(file, ".expected.json"), Tags: map[string]float64{}}
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(content, s), file)
		all = append(all, s)
	}
	return all
}

// scrape returns the tags that the family makes of the sample's input. Those of the
// workload are the machine's once more.
func (s *sample) scrape(t *testing.T, extended bool) map[string]float64 {
	t.Helper()
	steps := s.steps(t)
	hangs := slices.ContainsFunc(steps, func(s step) bool { return s.TimedOut })
	r := newRig(t, options{
		extended:  extended,
		workloads: workload.Options{Target: scrapers.Target{Pid: s.Config.Pid, Tree: true}},
		configure: func(c *Config) {
			if hangs {
				c.ToolTimeout = toolHangs
			}
			if steps[0].Argv[0] == "gcipuinfo" {
				c.ToolDir, c.Command = "", []string{filepath.Join(c.ToolDir, "gcipuinfo")}
			}
		},
	})
	s.start(r.machine)
	installSteps(r, steps)
	md, err := r.Scrape(bounded(t))
	if err != nil {
		t.Logf("scrape: %v", err)
	}
	scraperstest.RequireSane(t, md)
	named := scraperstest.InTagNaming(md)
	tags := map[string]float64{}
	for _, workloads := range []bool{false, true} {
		for _, p := range scraperstest.PointsOf(named) {
			switch {
			case p.Workload == "" && !workloads:
				tags[p.Metric.Name()] = p.Value()
			case p.Workload != "" && workloads:
				value, ok := tags[p.Metric.Name()]
				require.True(t, ok && value == p.Value(), "%s of a workload", p.Metric.Name())
			}
		}
	}
	return tags
}

// start makes the configured process and its descendants, and one that is another's.
func (s *sample) start(m scraperstest.Machine) {
	m.T.Helper()
	if s.Config.Pid == 0 {
		return
	}
	m.Process(1, 0, "init")
	m.Process(s.Config.Pid, 1, "train")
	for _, pid := range s.Config.ProcessTree {
		if pid != s.Config.Pid {
			m.Process(pid, s.Config.Pid, "worker")
		}
	}
}

// steps are what the tools do.
func (s *sample) steps(t *testing.T) []step {
	t.Helper()
	tool := strings.TrimPrefix(filepath.Ext(s.stem), ".")
	ending := ".json"
	if _, err := os.Stat(s.stem + ending); err != nil {
		ending = ".txt"
	}
	content, err := os.ReadFile(s.stem + ending)
	require.NoError(t, err)
	if tool != "cmd" { // a tool ends its last line, whoever edited the file
		return []step{{Argv: []string{tool}, Stdout: strings.TrimSuffix(string(content), "\n") + "\n"}}
	}
	var run struct{ Steps []step }
	require.NoError(t, json.Unmarshal(content, &run))
	require.NotEmpty(t, run.Steps)
	return run.Steps
}

// installSteps writes the programs. Each does the step with the arguments that it gets,
// else the last one of its name.
func installSteps(r *rig, steps []step) {
	r.t.Helper()
	byName := map[string][]step{}
	for _, s := range steps {
		if s.Error == "" {
			byName[s.Argv[0]] = append(byName[s.Argv[0]], s)
		}
	}
	for name, all := range byName {
		if name == string(sourceInfo) && !slices.ContainsFunc(all, step.lists) {
			all = append([]step{listingOf(all)}, all...)
		}
		var body strings.Builder
		body.WriteString("case \"$*\" in\n")
		p := r.install(name, `. "$D/body"`)
		for i, s := range all {
			args := strings.Join(s.Argv[1:], " ")
			fmt.Fprintf(&body, "'%s') %s;;\n", args, s.does(p, i))
		}
		last := len(all) - 1
		fmt.Fprintf(&body, "*) %s;;\nesac\n", all[last].does(p, last))
		p.write("body", body.String())
	}
}

// does returns the commands of a step.
func (s step) does(p program, number int) string {
	p.t.Helper()
	out, said := fmt.Sprint("stdout", number), fmt.Sprint("stderr", number)
	p.write(out, s.Stdout)
	p.write(said, s.Stderr)
	text := fmt.Sprintf(`cat "$D/%s"; cat "$D/%s" >&2; `, out, said)
	if s.TimedOut {
		return text + "sleep 600"
	}
	return text + fmt.Sprintf("exit %d", s.Exit)
}

// lists tells whether it is `gc-info -l`.
func (s step) lists() bool { return slices.Contains(s.Argv, "-l") }

var textID = regexp.MustCompile(`(?m)^ *id: *(\d+)`)

// listingOf is what `gc-info -l` prints where only that of devices is known.
func listingOf(steps []step) step {
	list := step{Argv: []string{string(sourceInfo), "-l"}}
	for _, s := range steps {
		for _, id := range textID.FindAllStringSubmatch(s.Stdout, -1) {
			list.Stdout += fmt.Sprintf("-+- Id: [%s], target: [PCIe], PCI Domain: [%s]\n", id[1], id[1])
		}
	}
	return list
}

// One folder has all forms that samples have.
func TestFormsOfSamples(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, familyName)
	require.NoError(t, os.Mkdir(folder, 0o700))
	for name, content := range map[string]string{
		"a.cmd.json": `{"steps": [{"argv": ["gc-inventory", "-2"], "exit": 1, "stderr": "unknown -2\n"},
			{"argv": ["gc-inventory"], "timed_out": true, "stdout": "{\"devices\": ["},
			{"argv": ["gc-monitor", "-j"], "error": "not found"},
			{"argv": ["gc-info", "-l"], "stdout": "-+- Id: [4], target: [Fabric]\n -+- Id: [5], type: [Multi IPU]\n  |--- Id: [4]\n"},
			{"argv": ["gc-info", "--device-info", "-d", "4"], "stdout": "Device Info:\n  clock: 20MHz\n"}]}`,
		"a.cmd.expected.json": `{"tags": {"ipu.4.clock (MHz)": 20}}`,
		"b.gc-info.txt":       "Device Info:\n  id: 2\n  user process id: 8\n  clock: 30MHz\nDevice Info:\n  id: 1\n  clock: 20MHz\n  user process id: 71",
		"b.gc-info.expected.json": `{"config": {"pid": 70, "process_tree": [70, 71]},
			"tags": {"ipu.1.clock (MHz)": 20}}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	t.Setenv(samplesVariable, root)
	TestSamples(t)
}
