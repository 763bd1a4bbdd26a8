// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// What the stand-ins of the tools print: figures that tell where they come from.
const (
	amdBody  = `[ "$1" = static ] && exit 0; echo '[{"gpu": 0, "usage": {"gfx_activity": 22}, "power": {"socket_power": 222}}]'`
	rocmBody = `echo '{"card0": {"GPU use (%)": "33", "Average Graphics Package Power (W)": "333"}}'`

	amdEmpty  = `echo '[]'`
	rocmEmpty = `echo 'WARNING: No AMD GPUs specified' >&2`

	fromSysfs, fromAMDSMI, fromROCmSMI = 11, 22, 33
)

// cardBelow makes a GPU that the KFD does not know.
func cardBelow(m scraperstest.Machine) {
	m.T.Helper()
	tree{m}.add(gpu{pci: "0000:05:00.0", files: fileSet{
		"gpu_busy_percent": "11", "mem_info_vram_total": "1000", "mem_info_vram_used": "250",
	}})
}

// choiceRig is the family where the tools, if there are any, are in PATH.
type choiceRig struct {
	*gpuScraper
	t       testing.TB
	machine scraperstest.Machine
	bin     string
	logs    *observer.ObservedLogs
	now     time.Time
}

func newChoiceRig(t *testing.T, cfg *Config) *choiceRig {
	t.Helper()
	r := &choiceRig{t: t, machine: scraperstest.NewMachine(t), bin: t.TempDir(), now: time.Unix(1_800_000_000, 0)}
	t.Setenv("PATH", r.bin+":"+os.Getenv("PATH"))
	t.Setenv("ROCM_PATH", "")
	require.NoError(t, cfg.Source.Validate())
	r.gpuScraper, r.logs = scraperBelow(t, r.machine.Root, false, cfg)
	clock := func() time.Time { return r.now }
	r.first().clock = clock
	for _, p := range r.first().order {
		if s, ok := p.source.(*sysfs); ok {
			s.clock = clock
		}
	}
	return r
}

func (r *choiceRig) first() *firstSource { return r.source.(*firstSource) }

func (r *choiceRig) toolOf(name sourceName) *tool {
	r.t.Helper()
	for _, p := range r.first().order {
		if p.name == name {
			return p.source.(*tool)
		}
	}
	require.Fail(r.t, "no such source", name)
	return nil
}

func (r *choiceRig) install(name, body string) program {
	r.t.Helper()
	return newProgram(r.t, r.bin, name, body)
}

// scrape returns the utilisation of the first GPU, which tells the source; 0 when
// there is none.
func (r *choiceRig) scrape() (float64, []error) {
	r.t.Helper()
	tags, errs := scrapeTags(r.t, r)
	return tags["gpu.0.gpu"], errs
}

func (r *choiceRig) requireSource(want float64) {
	r.t.Helper()
	got, errs := r.scrape()
	require.Empty(r.t, errs)
	require.InDelta(r.t, want, got, 0)
}

// sourcesSaid lists the sources that were logged.
func (r *choiceRig) sourcesSaid() []string {
	var all []string
	for _, entry := range r.logs.FilterMessage("Source of the figures of GPUs").All() {
		all = append(all, entry.ContextMap()["source"].(string))
	}
	return all
}

func requireAbsent(t testing.TB, want string, errs []error) {
	t.Helper()
	require.Len(t, errs, 1)
	var absent *scrapers.AbsentError
	require.ErrorAs(t, errs[0], &absent)
	require.EqualError(t, absent, want)
	require.NotEmpty(t, absent.Cure)
}

func requireFault(t testing.TB, source, want string, err error) {
	t.Helper()
	var fault *scrapers.SourceError
	require.ErrorAs(t, err, &fault)
	require.Equal(t, source, fault.Source)
	require.ErrorContains(t, fault, want)
}

const nowhere = "no AMD GPU: no GPU of the amdgpu driver in /sys, and no tool lists one; " +
	"load the amdgpu driver; in a container, let it see /sys, or mount the machine's / and set root_path"

func TestOrderOfSources(t *testing.T) {
	for name, tt := range map[string]struct {
		inSysfs   bool
		amd, rocm string // empty: not installed
		want      float64
		amdAsked  bool
		rocmAsked bool
	}{
		"sysfs before all":            {inSysfs: true, amd: amdBody, rocm: rocmBody, want: fromSysfs},
		"sysfs alone":                 {inSysfs: true, want: fromSysfs},
		"amd-smi before rocm-smi":     {amd: amdBody, rocm: rocmBody, want: fromAMDSMI, amdAsked: true},
		"amd-smi alone":               {amd: amdBody, want: fromAMDSMI, amdAsked: true},
		"rocm-smi alone":              {rocm: rocmBody, want: fromROCmSMI, rocmAsked: true},
		"amd-smi lists no GPU":        {amd: amdEmpty, rocm: rocmBody, want: fromROCmSMI, amdAsked: true, rocmAsked: true},
		"amd-smi fails":               {amd: `exit 9`, rocm: rocmBody, want: fromROCmSMI, amdAsked: true, rocmAsked: true},
		"amd-smi prints half of JSON": {amd: `printf '[{'`, rocm: rocmBody, want: fromROCmSMI, amdAsked: true, rocmAsked: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newChoiceRig(t, &Config{Source: sourceAuto})
			var amdSMI, rocmSMI program
			if tt.inSysfs {
				cardBelow(r.machine)
			}
			if tt.amd != "" {
				amdSMI = r.install("amd-smi", tt.amd)
			}
			if tt.rocm != "" {
				rocmSMI = r.install("rocm-smi", tt.rocm)
			}
			for range 3 {
				r.requireSource(tt.want)
			}
			if tt.amd != "" {
				assert.Equal(t, tt.amdAsked, len(amdSMI.calls()) > 0)
			}
			if tt.rocm != "" {
				assert.Equal(t, tt.rocmAsked, len(rocmSMI.calls()) > 0)
			}
			assert.Len(t, r.sourcesSaid(), 1)
		})
	}
}

func TestNoGPUAnywhere(t *testing.T) {
	for name, tools := range map[string][2]string{
		"no tools":          {},
		"tools without one": {amdEmpty, rocmEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			r := newChoiceRig(t, &Config{Source: sourceAuto})
			if tools[0] != "" {
				r.install("amd-smi", tools[0])
				r.install("rocm-smi", tools[1])
			}
			for range 2 {
				_, errs := r.scrape()
				requireAbsent(t, nowhere, errs)
			}
			assert.Empty(t, r.sourcesSaid())
		})
	}
}

func TestPinnedSource(t *testing.T) {
	for name, tt := range map[string]struct {
		source sourceName
		want   float64
	}{
		"sysfs": {sourceSysfs, fromSysfs}, "amd-smi": {sourceAMDSMI, fromAMDSMI}, "rocm-smi": {sourceROCmSMI, fromROCmSMI},
	} {
		t.Run(name, func(t *testing.T) {
			r := newChoiceRig(t, &Config{Source: tt.source})
			cardBelow(r.machine)
			r.install("amd-smi", amdBody)
			r.install("rocm-smi", rocmBody)
			for range 3 {
				r.requireSource(tt.want)
				r.now = r.now.Add(2 * detectionInterval)
			}
			assert.Equal(t, []string{name}, r.sourcesSaid())
		})
	}
}

func TestPinnedSourceWithoutGPU(t *testing.T) {
	const cure = "; load the amdgpu driver, install ROCm's tools, or use source: auto"
	for name, tt := range map[string]struct {
		source sourceName
		tool   string
		want   string
	}{
		"sysfs":    {sourceSysfs, "", "no AMD GPU: no GPU of the amdgpu driver in /sys" + cure},
		"amd-smi":  {sourceAMDSMI, amdEmpty, "no AMD GPU: amd-smi lists no GPU" + cure},
		"rocm-smi": {sourceROCmSMI, rocmEmpty, "no AMD GPU: rocm-smi lists no GPU" + cure},
	} {
		t.Run(name, func(t *testing.T) {
			r := newChoiceRig(t, &Config{Source: tt.source})
			if tt.tool != "" {
				r.install(name, tt.tool)
			}
			_, errs := r.scrape()
			requireAbsent(t, tt.want, errs)
		})
	}
}

// A tool that is asked for and is not installed is like a GPU that is not there.
func TestPinnedToolIsNotInstalled(t *testing.T) {
	r := newChoiceRig(t, &Config{Source: sourceROCmSMI})
	_, errs := r.scrape()
	require.Len(t, errs, 1)
	var absent *scrapers.AbsentError
	require.ErrorAs(t, errs[0], &absent)
	assert.Contains(t, absent.Reason, "rocm-smi: look for rocm-smi: not found in ")
	assert.Contains(t, absent.Reason, r.bin)
	r.install("rocm-smi", rocmBody)
	r.requireSource(fromROCmSMI)
}

// A tool that the user named is an error when it is not there, and none when it
// is not needed.
func TestConfiguredPathIsMissing(t *testing.T) {
	for name, source := range map[string]sourceName{"pinned": sourceAMDSMI, "auto": sourceAuto} {
		t.Run(name, func(t *testing.T) {
			r := newChoiceRig(t, &Config{Source: source, AMDSMIPath: "/nonexistent/amd-smi"})
			_, errs := r.scrape()
			require.Len(t, errs, 1)
			requireFault(t, "amd-smi", "there is no executable /nonexistent/amd-smi", errs[0])
			if source == sourceAuto {
				cardBelow(r.machine)
				r.requireSource(fromSysfs)
			}
		})
	}
}

// Tools that fail where the driver has no GPU are no errors: a broken installation
// of ROCm on another maker's machine must not be tried with every scrape.
func TestAllThatFailIsTold(t *testing.T) {
	r := newChoiceRig(t, &Config{Source: sourceAuto})
	r.install("amd-smi", `echo no >&2; exit 9`)
	r.install("rocm-smi", `echo neither >&2; exit 8`)
	_, errs := r.scrape()
	require.Len(t, errs, 1)
	var absent *scrapers.AbsentError
	require.ErrorAs(t, errs[0], &absent)
	assert.Contains(t, absent.Reason, `amd-smi exited with 9: "no"`)
	assert.Contains(t, absent.Reason, `rocm-smi exited with 8: "neither"`)
}

// brokenSysfs cannot be listed.
func brokenSysfs(r *choiceRig) {
	r.t.Helper()
	r.machine.Write("sys/class/drm", "not a folder")
}

func TestSysfsCannotBeListed(t *testing.T) {
	r := newChoiceRig(t, &Config{Source: sourceAuto})
	brokenSysfs(r)
	_, errs := r.scrape()
	require.Len(t, errs, 1)
	requireFault(t, "sysfs", "listing the cards", errs[0])
	r.install("rocm-smi", rocmBody)
	r.requireSource(fromROCmSMI)
	r.machine.Remove("sys/class/drm")
	cardBelow(r.machine)
	r.requireSource(fromROCmSMI)
	r.now = r.now.Add(detectionInterval)
	r.requireSource(fromSysfs)
}

// A better source is looked for now and then; the choice is said when it changes.
func TestGPUsAppearInSysfs(t *testing.T) {
	r := newChoiceRig(t, &Config{Source: sourceAuto})
	tool := r.install("amd-smi", amdBody)
	r.requireSource(fromAMDSMI)
	r.now = r.now.Add(detectionInterval)
	r.requireSource(fromAMDSMI)
	assert.Equal(t, []string{"amd-smi"}, r.sourcesSaid(), "the same one again")
	cardBelow(r.machine)
	r.now = r.now.Add(detectionInterval - 1)
	r.requireSource(fromAMDSMI)
	r.now = r.now.Add(1)
	calls := len(tool.calls())
	r.requireSource(fromSysfs)
	r.now = r.now.Add(detectionInterval)
	r.requireSource(fromSysfs)
	assert.Len(t, tool.calls(), calls)
	assert.Equal(t, []string{"amd-smi", "sysfs"}, r.sourcesSaid())
}

func TestGPUsLeaveSysfs(t *testing.T) {
	r := newChoiceRig(t, &Config{Source: sourceAuto})
	cardBelow(r.machine)
	r.install("amd-smi", amdBody)
	r.requireSource(fromSysfs)
	r.machine.Remove("sys")
	r.now = r.now.Add(detectionInterval)
	r.requireSource(fromAMDSMI)
}

// What one source lacks is not taken from another.
func TestSourcesAreNotMixed(t *testing.T) {
	r := newChoiceRig(t, &Config{Source: sourceAuto})
	cardBelow(r.machine)
	tool := r.install("amd-smi", amdBody)
	tags, errs := scrapeTags(t, r)
	require.Empty(t, errs)
	scraperstest.CompareTags(t, "tags", map[string]float64{"gpu.0.gpu": fromSysfs, "gpu.0.memoryAllocated": 25}, tags)
	assert.Empty(t, tool.calls())
}

// A slow tool is waited for before the next one is asked.
func TestSlowToolComesFirst(t *testing.T) {
	r := newChoiceRig(t, &Config{Source: sourceAuto})
	amdSMI := r.install("amd-smi", untilLetGo+amdBody)
	rocmSMI := r.install("rocm-smi", rocmBody)
	for range 2 {
		got := r.source.read(amdSMI.untilCalled(), want{})
		assert.Empty(t, got.cards)
		assert.Empty(t, got.errs)
	}
	amdSMI.letGo()
	r.requireSource(fromAMDSMI)
	assert.Empty(t, rocmSMI.calls())
	amdSMI.requireNeverTwice()
}

// One that hangs costs itself: the next one is taken, and what the first had to
// say when it was not asked is not told later.
func TestHungToolIsPassedOver(t *testing.T) {
	r := newChoiceRig(t, &Config{Source: sourceAuto, ToolTimeout: never})
	r.toolOf(sourceAMDSMI).runner.Timeout = toolHangs
	amdSMI := r.install("amd-smi", `[ -e "$D/go" ] || { `+forever+`; }
`+amdBody)
	r.install("rocm-smi", rocmBody)
	r.requireSource(fromROCmSMI)
	requireGone(t, amdSMI.pid("self"), amdSMI.pid("child"))
	r.requireSource(fromROCmSMI)
	amdSMI.letGo()
	r.toolOf(sourceAMDSMI).runner.Timeout = never
	r.now = r.now.Add(detectionInterval)
	require.Eventually(t, func() bool {
		got, errs := r.scrape()
		require.Empty(t, errs)
		return got == fromAMDSMI
	}, tooLong, time.Millisecond, "meanwhile the other one goes on")
	assert.Equal(t, []string{"rocm-smi", "amd-smi"}, r.sourcesSaid())
}

// A tool that is uninstalled while it is in use is an error once.
func TestToolIsRemoved(t *testing.T) {
	r := newChoiceRig(t, &Config{Source: sourceAuto})
	tool := r.install("rocm-smi", rocmBody)
	r.requireSource(fromROCmSMI)
	require.NoError(t, os.Remove(tool.path))
	_, errs := r.scrape()
	require.Len(t, errs, 1)
	requireFault(t, "rocm-smi", "no such file", errs[0])
	_, errs = r.scrape()
	requireAbsent(t, nowhere, errs)
}

// The tools are asked for what the metrics that are on need.
func TestToolsAreAskedForWhatIsOn(t *testing.T) {
	for _, extended := range []bool{false, true} {
		m := scraperstest.NewMachine(t)
		tool := newProgram(t, t.TempDir(), "rocm-smi", rocmBody)
		s, _ := scraperBelow(t, m.Root, extended, &Config{Source: sourceROCmSMI, ROCmSMIPath: tool.path})
		_, errs := scrapeTags(t, s)
		require.Empty(t, errs)
		require.Len(t, tool.calls(), 1)
		assert.Equal(t, extended, strings.Contains(tool.calls()[0], "--showclocks"))
	}
}
