// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package apple

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// fakeTool writes a program. In its body $D is its folder, where its arguments are noted.
func fakeTool(t testing.TB, body string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "tool")
	// No fork while the file is open for writing: the child would inherit that, and the
	// start of the script would fail with "text file busy".
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nD='"+dir+"'\necho \"$*\" >> \"$D/args\"\n"+body+"\n"), 0o700))
	return path
}

func argumentsOf(t testing.TB, tool string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(tool), "args"))
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

const macmonLine = `{"temp":{"gpu_temp_avg":40},"gpu_freq_mhz":500,"gpu_active_ratio":0.25,"gpu_power":16.5,"ane_power":1,"sys_power":20,"soc":{"gpu_cores":16}}`

func TestMacmon(t *testing.T) {
	want := map[string]float64{"gpu.0.gpu": 25, "gpu.0.temp": 40, "gpu.0.powerWatts": 16.5, "gpu.0.powerPercent": 50}
	for name, tt := range map[string]struct{ help, args string }{
		"with its newer option": {"  --soc-info  Include SoC information", "pipe -s 0 -i 1000 --soc-info"},
		"without":               {"  --samples", "pipe -s 0 -i 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			tool := fakeTool(t, `if [ "$2" = --help ]; then echo '`+tt.help+`'; exit 0; fi
echo '`+macmonLine+`'; exec sleep 1000`)
			r := newRig(t, Config{Source: sourceMacmon, ToolPath: tool}, false)
			r.scraper.Prime(t.Context())
			r.eventually(func() bool { return r.reports() >= 1 })
			for range 2 {
				scraperstest.CompareTags(t, "tags", want, r.tags())
			}
			assert.Equal(t, []string{"pipe --help", tt.args}, argumentsOf(t, tool), "it is started once")
		})
	}
}

// reports is how many a tool gave.
func (r *rig) reports() int {
	n, _ := r.keeper().Reports()
	return n
}

func (r *rig) keeper() *tool { return r.scraper.source.(*tool) }

func (r *rig) eventually(is func() bool) {
	r.t.Helper()
	require.Eventually(r.t, is, tooLong, 5*time.Millisecond)
}

func TestPowermetrics(t *testing.T) {
	document := `<plist version="1.0"><dict><key>elapsed_ns</key><integer>1000000000</integer><key>gpu</key><dict>` +
		`<key>freq_hz</key><real>372.5</real><key>gpu_energy</key><integer>500</integer><key>idle_ratio</key><real>0.75</real></dict></dict></plist>`
	tool := fakeTool(t, `printf '%s\n\000' '`+document+`'; printf '%s' '`+document[:60]+`'; exec sleep 1000`)
	r := newRig(t, Config{Source: sourcePowermetrics, ToolPath: tool, GPUPowerLimitWatts: 2}, true)
	r.scraper.Prime(t.Context())
	r.eventually(func() bool { return r.reports() >= 1 })
	scraperstest.CompareTags(t, "tags", map[string]float64{
		"gpu.0.gpu": 25, "gpu.0.powerWatts": 0.5, "gpu.0.powerPercent": 25, "gpu.0.freq": 372.5,
	}, r.tags())
	assert.Equal(t, []string{"--samplers gpu_power -i 1000 -f plist"}, argumentsOf(t, tool))
}

func TestToolThatEndsIsTold(t *testing.T) {
	tool := fakeTool(t, "echo 'powermetrics must be invoked as the superuser' >&2; exit 1")
	r := newRig(t, Config{Source: sourcePowermetrics, ToolPath: tool}, false)
	r.scraper.Prime(t.Context())
	md, err := r.scrape()
	isSource(t, err, "powermetrics", "exited with 1", "must be invoked as the superuser")
	assert.Zero(t, md.DataPointCount())
}

func TestOldReportIsNotEmitted(t *testing.T) {
	tool := fakeTool(t, `if [ "$2" = --help ]; then exit 0; fi
echo '`+macmonLine+`'; exec sleep 1000`)
	r := newRig(t, Config{Source: sourceMacmon, ToolPath: tool}, false)
	r.scraper.Prime(t.Context())
	r.eventually(func() bool { return r.reports() >= 1 })
	require.NotEmpty(t, r.tags())
	r.keeper().StaleAfter = -1
	md, err := r.scrape()
	isSource(t, err, "macmon", "no report for")
	assert.Zero(t, md.DataPointCount())
}

func TestToolThatIsMissing(t *testing.T) {
	for name, path := range map[string]string{"none": filepath.Join(t.TempDir(), "none"), "a folder": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			for _, source := range []sourceName{sourceMacmon, sourcePowermetrics} {
				_, err := newRig(t, Config{Source: source, ToolPath: path}, false).scrape()
				isSource(t, err, string(source))
			}
			_, err := newRig(t, Config{Source: sourceIOReg, ToolPath: path}, false).scrape()
			isSource(t, err, path)
		})
	}
}

func TestMacmonIsLookedForInPath(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", "relative:"+folder)
	_, err := search("")
	require.ErrorContains(t, err, "install macmon")
	require.NoError(t, os.WriteFile(filepath.Join(folder, macmonName), nil, 0o700))
	path, err := search("")
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(folder, macmonName), path)
}

func TestIOReg(t *testing.T) {
	entry := `+-o AGXAcceleratorG17X  <class AGXAcceleratorG17X, id 0x1>
    {
      "PerformanceStatistics" = {"Device Utilization %"=7,"In use system memory"=100,"Alloc system memory"=300}
    }`
	for name, tt := range map[string]struct {
		body, absent, want string
		tags               map[string]float64
	}{
		"a GPU":             {"cat <<'END'\n" + entry + "\nEND", "", "", map[string]float64{"gpu.0.gpu": 7, "gpu.0.memoryUsed": 100, "gpu.0.memoryAllocatedBytes": 300}},
		"a virtual machine": {"exit 0", "shows no Apple GPU", "", nil},
		"it fails":          {"echo no >&2; exit 3", "", "exited with 3", nil},
		"no document":       {"echo '<plist>'", "", "property list", nil},
		"it floods":         {"yes", "", "1048576", nil},
	} {
		t.Run(name, func(t *testing.T) {
			tool := fakeTool(t, tt.body)
			md, err := newRig(t, Config{Source: sourceIOReg, ToolPath: tool}, true).scrape()
			switch {
			case tt.absent != "":
				isAbsent(t, err, tt.absent)
			case tt.want != "":
				isSource(t, err, tool, tt.want)
			default:
				require.NoError(t, err)
			}
			if tt.tags == nil {
				assert.Zero(t, md.DataPointCount())
			} else {
				scraperstest.CompareTags(t, "tags", tt.tags, scraperstest.TagsOf(md))
			}
			assert.Equal(t, []string{"-r -d 1 -w 0 -c AGXAccelerator -a"}, argumentsOf(t, tool))
		})
	}
}
