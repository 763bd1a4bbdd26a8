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
			if wrapper, ok := wrapperOf(steps); ok {
				c.ToolDir, c.Command = "", []string{filepath.Join(c.ToolDir, wrapper)}
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
	if tool != "cmd" {
		return []step{{Argv: []string{tool}, Stdout: ended(string(content))}}
	}
	var run struct{ Steps []step }
	require.NoError(t, json.Unmarshal(content, &run))
	for i := range run.Steps {
		s := &run.Steps[i]
		require.NotEmpty(t, s.Argv)
		if s.Exit == 0 && !s.TimedOut {
			s.Stdout = ended(s.Stdout)
		}
	}
	return run.Steps
}

// ended is what a tool prints that comes to its end: it ends its last line, whoever
// edited or trimmed what it printed.
func ended(text string) string { return strings.TrimSuffix(text, "\n") + "\n" }

// name is the program's; the sample may tell where it was.
func (s step) name() string { return filepath.Base(s.Argv[0]) }

// wrapperOf finds a program that is none of the SDK's: somebody's own, which has to be
// configured.
func wrapperOf(steps []step) (string, bool) {
	at := slices.IndexFunc(steps, func(s step) bool {
		return !slices.Contains([]sourceName{sourceInventory, sourceMonitor, sourceInfo}, sourceName(s.name()))
	})
	if at < 0 {
		return "", false
	}
	return steps[at].name(), true
}

// installSteps writes the programs. Each does the step with the arguments that it gets,
// else the last one of its name.
func installSteps(r *rig, steps []step) {
	r.t.Helper()
	byName := map[string][]step{}
	for _, s := range steps {
		if s.Error == "" {
			byName[s.name()] = append(byName[s.name()], s)
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
			fmt.Fprintf(&body, "'%s') %s;;\n", s.asked(), s.does(p, i))
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
func (s step) lists() bool {
	return slices.Contains(s.Argv, "-l") || slices.Contains(s.Argv, "--list-devices")
}

// asked are the arguments with which the family asks for the same: those of a sample do
// not bind, but gc-info tells of another device with each number.
func (s step) asked() string {
	args := s.Argv[1:]
	if s.name() != string(sourceInfo) {
		return strings.Join(args, " ")
	}
	if s.lists() {
		return "-l"
	}
	at := slices.IndexFunc(args, wholeNumber.MatchString)
	if at < 0 {
		return strings.Join(args, " ")
	}
	return "--device-info -d " + args[at]
}

var wholeNumber = regexp.MustCompile(`^\d+$`)

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
		// Arguments and places are the sample's own, a crash is a signal's number.
		"c.cmd.json": `{"steps": [{"argv": ["/opt/gc/bin/gc-monitor", "--json"], "exit": -11, "stdout": "{\"cards\": [{\"ipus\": [{\"ID\": 9, \"IPU utilisation\": \"1%\"}]}]}"},
			{"argv": ["gc-info", "--list-devices"], "stdout": "-+- Id: [0], target: [PCIe]\n-+- Id: [1], target: [PCIe]"},
			{"argv": ["gc-info", "-d", "0", "--device-info"], "stdout": "Device Info:\n  id: 0\n  user process id: 7\n  clock: 20MHz"},
			{"argv": ["gc-info", "--device-info", "--device-id", "1"], "stdout": "Device Info:\n  id: 1\n  clock: 30MHz\n  user process id: 7"}]}`,
		"c.cmd.expected.json": `{"config": {"pid": 7}, "tags": {"ipu.0.clock (MHz)": 20, "ipu.1.clock (MHz)": 30}}`,
		"d.cmd.json":          `{"steps": []}`,
		"d.cmd.expected.json": `{"notes": "nothing is installed"}`,
		"e.cmd.json":          `{"steps": [{"argv": ["/srv/ipu-json"], "stdout": "{\"3\": {\"clock\": 20}}"}]}`,
		"e.cmd.expected.json": `{"tags": {"ipu.3.clock (MHz)": 20}}`,
		"f.gcipuinfo.json":    `[{"id": "1", "speed": "8 GT/s", "link speed": "16 GT/s", "total board power": "7 W"}, {"target": "Multi IPU", "clock": "1MHz"}, {"clock": 40, "ipu power": "-1 W"}]`,
		"f.gcipuinfo.expected.json": `{"tags": {"ipu.1.speed (GT/s)": 8, "ipu.2.clock (MHz)": 40},
			"extras": {"ipu.1.total board power (W)": 7}}`,
		"g.gc-monitor.json":            `{"cards": [{"ipus": [{"ID": "0"}, {"ID": "1", "PID": "5", "IPU utilisation": "0.00%", "IPU utilisation session": "2.5%"}]}]}`,
		"g.gc-monitor.expected.json":   `{"tags": {"ipu.1.ipu utilisation (%)": 0, "ipu.1.ipu utilisation (session) (%)": 2.5}}`,
		"h.gc-inventory.json":          `{"devices": []}`,
		"h.gc-inventory.expected.json": `{"tags": {}}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	t.Setenv(samplesVariable, root)
	TestSamples(t)
}
