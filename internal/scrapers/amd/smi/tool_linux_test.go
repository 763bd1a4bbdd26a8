// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

const (
	// tooLong catches hangs; nothing here takes near as long.
	tooLong = 20 * time.Second

	rocmBase     = "--showuse --showmemuse --showmeminfo vram --showtemp --showpower --showmaxpower --showmemoverdrive --showbus --json"
	rocmNoMemUse = "--showuse --showmeminfo vram --showtemp --showpower --showmaxpower --showmemoverdrive --showbus --json"
	rocmExtended = "--showuse --showmemuse --showmeminfo vram --showtemp --showpower --showmaxpower --showmemoverdrive --showbus" +
		" --showclocks --showreplaycount --showenergycounter --json"
	amdBase     = "metric --usage --power --temperature --mem-usage --json"
	amdExtended = "metric --usage --power --temperature --mem-usage --clock --ecc-blocks --energy --pcie --json"
	amdStatic   = "static --limit --asic --bus --json"

	rocmOut = `{"card0": {"GPU use (%)": "5"}}`
	amdOut  = `[{"gpu": 0, "usage": {"gfx_activity": 5}}]`
)

// fake is a stand-in for a tool. It writes down how it was called.
type fake struct{ path, dir string }

// newFake writes an executable of which $D is the folder, and $* what it was
// called with.
func newFake(t *testing.T, name, body string) fake {
	t.Helper()
	dir := t.TempDir()
	f := fake{path: filepath.Join(dir, name), dir: dir}
	text := fmt.Sprintf("#!/bin/sh\nD='%s'\necho \"$*\" >> \"$D/calls\"\n%s\n", dir, body)
	// No fork while the file is open for writing: the child would inherit that,
	// and the start of the script would fail with "text file busy".
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(f.path, []byte(text), 0o700))
	return f
}

func (f fake) calls(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, "calls"))
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func (f fake) rocm() *Tool { return NewROCm(Options{Path: f.path}) }

func (f fake) amd() *Tool { return NewAMD(Options{Path: f.path, Interval: time.Hour}) }

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tooLong)
	t.Cleanup(cancel)
	return ctx
}

func TestReadAsksOnlyForWhatIsNeeded(t *testing.T) {
	f := newFake(t, "rocm-smi", `echo '`+rocmOut+`'`)
	tool := f.rocm()
	got, cost, err := tool.Read(bounded(t), false)
	require.NoError(t, err)
	assert.Equal(t, []card.Reading{{GPU: some(5)}}, got)
	assert.Equal(t, 1, cost.Runs)
	assert.Positive(t, cost.Wall)
	_, _, err = tool.Read(bounded(t), true)
	require.NoError(t, err)
	assert.Equal(t, []string{rocmBase, rocmExtended}, f.calls(t))
	assert.Equal(t, "rocm-smi", tool.Name())

	f = newFake(t, "amd-smi", `echo '`+amdOut+`'`)
	got, cost, err = f.amd().Read(bounded(t), true)
	require.NoError(t, err)
	assert.Equal(t, []card.Reading{{GPU: some(5)}}, got)
	assert.Equal(t, 2, cost.Runs)
	assert.Equal(t, []string{amdExtended, amdStatic}, f.calls(t))
	f = newFake(t, "amd-smi", `echo '`+amdOut+`'`)
	_, _, err = f.amd().Read(bounded(t), false)
	require.NoError(t, err)
	assert.Equal(t, []string{amdBase, amdStatic}, f.calls(t))
}

func TestReadTellsTheProcessorTime(t *testing.T) {
	f := newFake(t, "rocm-smi", `i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; exit 1`)
	_, cost, err := f.rocm().Read(bounded(t), false)
	require.Error(t, err)
	assert.Positive(t, cost.CPU, "a failed reading costs as well")
	assert.Positive(t, cost.Wall)
	assert.Equal(t, 1, cost.Runs)
}

func TestReadHandsOnAMinimalEnvironment(t *testing.T) {
	t.Setenv("SMI_TEST_SECRET", "leaked")
	t.Setenv("LD_LIBRARY_PATH", "/sw/lib")
	t.Setenv("LANG", "de_DE.UTF-8")
	f := newFake(t, "rocm-smi", `env > "$D/env"; echo '`+rocmOut+`'`)
	_, _, err := f.rocm().Read(bounded(t), false)
	require.NoError(t, err)
	env, err := os.ReadFile(filepath.Join(f.dir, "env"))
	require.NoError(t, err)
	assert.NotContains(t, string(env), "leaked")
	assert.NotContains(t, string(env), "LANG=")
	for _, want := range []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "PYTHONWARNINGS=ignore", "LD_LIBRARY_PATH=/sw/lib"} {
		assert.Contains(t, strings.Split(string(env), "\n"), want)
	}
}

func TestTheExitStatusCountsOnlyWithoutFigures(t *testing.T) {
	for _, code := range []int{1, 2, 8, 127} {
		got, _, err := newFake(t, "rocm-smi", fmt.Sprintf(`echo '%s'; echo 'usage: Exception caught: map::at' >&2; exit %d`, rocmOut, code)).rocm().Read(bounded(t), false)
		require.NoError(t, err)
		assert.Len(t, got, 1)
		got, _, err = newFake(t, "rocm-smi", fmt.Sprintf(`echo '{"system": {}}'; exit %d`, code)).rocm().Read(bounded(t), false)
		require.NoError(t, err)
		assert.Empty(t, got)
	}
}

func TestReadWithoutGPUs(t *testing.T) {
	for name, body := range map[string]string{
		"nothing printed":      `echo 'ERROR:root:Driver not initialized (amdgpu not found in modules)' >&2`,
		"nothing at all":       ``,
		"the system only":      `echo '{"system": {"Driver version": "6.3.6"}}'; echo 'WARNING: No AMD GPUs specified' >&2`,
		"merged":               `echo 'WARNING: No AMD GPUs specified'; echo 'No JSON data to report'`,
		"status of no driver":  `echo 'ERROR:root:Driver not initialized (amdgpu not found in modules)' >&2; exit 255`,
		"status of no devices": `echo 'ERROR:root:Unable to detect any GPU devices, check amdgpu version' >&2; exit 255`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, "rocm-smi", body)
			got, cost, err := f.rocm().Read(bounded(t), false)
			require.NoError(t, err)
			assert.Empty(t, got)
			assert.Equal(t, 1, cost.Runs)
		})
	}
	f := newFake(t, "amd-smi", `echo '[]'`)
	got, cost, err := f.amd().Read(bounded(t), false)
	require.NoError(t, err)
	assert.Empty(t, got)
	assert.Equal(t, 1, cost.Runs, "no caps of no GPUs")
}

func TestReadSaysWhatTheToolSaid(t *testing.T) {
	for name, tt := range map[string]struct{ body, want string }{
		"text":                        {`printf '\033[33mUnable to find librocm_smi64.so.7\033[0m\nmore\n'`, `rocm-smi exited with 0: "Unable to find librocm_smi64.so.7" (path %s)`},
		"text and a status":           {`echo NOT_SUPPORTED; exit 1`, `rocm-smi exited with 1: "NOT_SUPPORTED" (path %s)`},
		"an exception":                {`printf 'Traceback (most recent call last):\n  File x\nKeyError: 7\n' >&2; exit 1`, `rocm-smi exited with 1: "KeyError: 7" (path %s)`},
		"an exception after text":     {`echo 'None Unable to get list'; printf 'Traceback:\nKeyError: 7\n' >&2; exit 1`, `rocm-smi exited with 1: "KeyError: 7" (path %s)`},
		"text and warnings":           {`echo 'Unable to load'; echo warned >&2; exit 1`, `rocm-smi exited with 1: "Unable to load" (path %s)`},
		"an error":                    {`printf 'one\ntwo\n' >&2; exit 8`, `rocm-smi exited with 8: "two" (path %s)`},
		"colours":                     {`printf '\033[0m\n'; exit 8`, `rocm-smi exited with 8: "(it printed nothing)" (path %s)`},
		"nothing":                     {`exit 8`, `rocm-smi exited with 8: "(it printed nothing)" (path %s)`},
		"exit 2 without a usage text": {`echo 'cannot' >&2; exit 2`, `rocm-smi exited with 2: "cannot" (path %s)`},
		"broken JSON":                 {`echo '{"card0" 1}'`, `rocm-smi exited with 0: "{\"card0\" 1}": invalid character '1' after object key (path %s)`},
		"JSON cut off":                {`printf '{"card0": {"GPU u'`, `rocm-smi exited with 0: the output is truncated, it ends within the JSON`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, "rocm-smi", tt.body)
			got, _, err := f.rocm().Read(bounded(t), false)
			require.ErrorContains(t, err, strings.ReplaceAll(tt.want, "%s", f.path))
			require.ErrorContains(t, err, f.path)
			assert.Empty(t, got)
			assert.Len(t, f.calls(t), 1)
		})
	}
	_, _, err := newFake(t, "rocm-smi", `head -c 100000 /dev/zero | tr '\0' x; exit 1`).rocm().Read(bounded(t), false)
	require.ErrorAs(t, err, new(*TextError))
	assert.Less(t, len(err.Error()), 2*maxQuote+100)
	_, _, err = newFake(t, "amd-smi", `echo '{"error": "no such device", "code": -3}'; exit 253`).amd().Read(bounded(t), false)
	require.ErrorContains(t, err, `amd-smi exited with 253: "no such device" (path `)
}

func TestRefusedFlagsAreNotTriedAgain(t *testing.T) {
	const usage = `printf 'usage: rocm-smi [-h] [-V]\nrocm-smi: error: unrecognized arguments: --showbus\n' >&2; exit 2`
	f := newFake(t, "rocm-smi", `[ "$*" = "-a --json" ] || { `+usage+`; }
echo '`+rocmOut+`'`)
	tool := f.rocm()
	for range 2 {
		got, _, err := tool.Read(bounded(t), true)
		require.NoError(t, err)
		assert.Len(t, got, 1)
	}
	assert.Equal(t, []string{rocmExtended, "-a --json", "-a --json"}, f.calls(t))

	for name, refusal := range map[string]string{"status": `exit 2`, "usage": `echo 'Usage: amd-smi [-h]'; exit 0`, "usage on stderr": `echo 'usage: amd-smi [-h]' >&2; exit 1`} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, "amd-smi", `case "$*" in "metric --json"|static*) echo '`+amdOut+`';; *) `+refusal+`;; esac`)
			tool := f.amd()
			for range 2 {
				got, _, err := tool.Read(bounded(t), false)
				require.NoError(t, err)
				assert.Len(t, got, 1)
			}
			assert.Equal(t, []string{amdBase, "metric --json", amdStatic, "metric --json"}, f.calls(t))
		})
	}
}

func TestFlagsThatAreAllRefusedAreAnError(t *testing.T) {
	f := newFake(t, "rocm-smi", `printf 'usage: rocm-smi [-h]\nrocm-smi: error: no\n' >&2; exit 2`)
	_, cost, err := f.rocm().Read(bounded(t), false)
	require.EqualError(t, err, `rocm-smi exited with 2: "rocm-smi: error: no" (path `+f.path+`)`)
	assert.Equal(t, 2, cost.Runs)
}

func TestAVersionThatFailsWithMemUseIsNotAskedForItAgain(t *testing.T) {
	f := newFake(t, "rocm-smi", `case "$*" in *--showmemuse*)
printf 'Traceback (most recent call last):\n  File "/opt/rocm/bin/rocm-smi", line 9, in showMemUse\n    x\nValueError: invalid literal for int() with base 10: N/A\n' >&2; exit 1;;
esac
echo '`+rocmOut+`'`)
	tool := f.rocm()
	for range 2 {
		got, _, err := tool.Read(bounded(t), false)
		require.NoError(t, err)
		assert.Len(t, got, 1)
	}
	assert.Equal(t, []string{rocmBase, rocmNoMemUse, rocmNoMemUse}, f.calls(t))

	f = newFake(t, "rocm-smi", `printf 'Traceback:\n in showMemUse\nValueError: no\n' >&2; exit 1`)
	_, cost, err := f.rocm().Read(bounded(t), false)
	require.ErrorContains(t, err, `"ValueError: no"`)
	assert.Equal(t, 2, cost.Runs, "once more, no oftener")
}

// limits is an amd-smi whose static fails while there is a file named broken.
const limits = `case "$1" in
static) [ -e "$D/broken" ] && { echo 'no limits' >&2; exit 1; }
echo '{"gpu_data": [{"gpu": 0, "limit": {"socket_power": 300}, "asic": {"market_name": "Card"}, "bus": {"bdf": "0000:C1:00.0"}}]}';;
*) echo '[{"gpu": 0, "power": {"socket_power": 150}}, {"gpu": 1, "power": {"socket_power": 10, "power_limit": 20}}]';;
esac`

func TestWhatHardlyChangesIsReadOncePerInterval(t *testing.T) {
	f := newFake(t, "amd-smi", limits)
	now := time.Unix(1e9, 0)
	tool := NewAMD(Options{Path: f.path, Interval: time.Minute, Now: func() time.Time { return now }})
	read := func(wantRuns int) []card.Reading {
		got, cost, err := tool.Read(bounded(t), false)
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Equal(t, wantRuns, cost.Runs)
		assert.Equal(t, some(150), got[0].Power)
		assert.Equal(t, some(20), got[1].Cap, "one's own")
		return got
	}
	got := read(2)
	assert.Equal(t, some(300), got[0].Cap)
	assert.Equal(t, "0000:c1:00.0", got[0].PCI)
	assert.Equal(t, "Card", got[0].Model)
	assert.Equal(t, some(50), got[0].PowerPercent())
	assert.Empty(t, got[1].PCI)
	require.NoError(t, tool.StaticError())

	now = now.Add(time.Minute - 1)
	assert.Equal(t, some(300), read(1)[0].Cap)

	broken := filepath.Join(f.dir, "broken")
	require.NoError(t, os.WriteFile(broken, nil, 0o600))
	now = now.Add(1)
	got = read(2)
	assert.False(t, got[0].Cap.Known, "a limit is a setting, which may have changed")
	assert.Equal(t, "Card", got[0].Model, "the device is the same")
	require.EqualError(t, tool.StaticError(), `read the limits: amd-smi exited with 1: "no limits" (path `+f.path+`)`)
	require.NoError(t, os.Remove(broken))
	assert.False(t, read(1)[0].Cap.Known)

	now = now.Add(time.Minute)
	assert.Equal(t, some(300), read(2)[0].Cap)
	require.NoError(t, tool.StaticError())
}

func TestFailingLimitsFailNothingElse(t *testing.T) {
	for name, static := range map[string]string{
		"text": `echo no`, "status": `exit 3`, "cut off": `echo '[{'`, "endless": `exec sleep 600`, "too much": `yes '[1,'`, "driver gone": `echo 'Driver not initialized' >&2; exit 255`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, "amd-smi", `[ "$1" = metric ] && { echo '`+amdOut+`'; exit; }
`+static)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			tool := f.amd()
			got, cost, err := tool.Read(ctx, false)
			require.NoError(t, err)
			assert.Equal(t, []card.Reading{{GPU: some(5)}}, got)
			assert.Equal(t, 2, cost.Runs)
			assert.Equal(t, name == "driver gone", tool.StaticError() == nil)
		})
	}
}

func TestAToolThatHangsIsKilledWithItsChildren(t *testing.T) {
	f := newFake(t, "rocm-smi", `sleep 600 & echo $! > "$D/child"; echo $$ > "$D/self"; wait`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	_, cost, err := f.rocm().Read(ctx, false)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, f.path)
	assert.Less(t, time.Since(start), tooLong)
	assert.Equal(t, 1, cost.Runs)
	requireGone(t, f, "self", "child")
}

func TestAChildThatHoldsThePipeIsNotWaitedFor(t *testing.T) {
	f := newFake(t, "rocm-smi", `sleep 600 & echo $! > "$D/child"; echo '`+rocmOut+`'`)
	got, _, err := f.rocm().Read(bounded(t), false)
	require.NoError(t, err)
	assert.Len(t, got, 1)
	requireGone(t, f, "child")
}

func requireGone(t *testing.T, f fake, names ...string) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(f.dir, name))
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			// A zombie is dead; its new parent is slow to reap it.
			return err != nil && unix.Kill(pid, 0) == unix.ESRCH || strings.Contains(string(stat), ") Z ")
		}, tooLong, time.Millisecond, "process %d", pid)
	}
}

func TestAToolThatNeverStopsWritingIsStopped(t *testing.T) {
	_, _, err := newFake(t, "rocm-smi", `exec yes '{"card0": {}}'`).rocm().Read(bounded(t), false)
	var over *guard.LimitError
	require.ErrorAs(t, err, &over)
	assert.EqualValues(t, 8<<20, over.Max)

	got, _, err := newFake(t, "rocm-smi", `head -c 20000000 /dev/zero >&2; echo '`+rocmOut+`'`).rocm().Read(bounded(t), false)
	require.NoError(t, err, "what it says on stderr is cut silently")
	assert.Len(t, got, 1)
}

func TestAToolThatWentIsLookedForAgain(t *testing.T) {
	old, other := newFake(t, "rocm-smi", `echo '`+rocmOut+`'`), newFake(t, "rocm-smi", `echo '`+rocmOut+`'`)
	tool := NewROCm(Options{Dirs: func() []string { return []string{old.dir, other.dir} }})
	_, _, err := tool.Read(bounded(t), false)
	require.NoError(t, err)
	require.NoError(t, os.Remove(old.path))
	_, _, err = tool.Read(bounded(t), false)
	require.ErrorIs(t, err, os.ErrNotExist)
	got, _, err := tool.Read(bounded(t), false)
	require.NoError(t, err)
	assert.Len(t, got, 1)
	assert.Len(t, other.calls(t), 1)

	require.NoError(t, os.Remove(other.path))
	_, _, err = tool.Read(bounded(t), false)
	require.Error(t, err)
	_, _, err = tool.Read(bounded(t), false)
	require.ErrorIs(t, err, ErrNotFound)
}

func TestReadDoesNotBeginWhenItsTimeIsOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := newFake(t, "rocm-smi", ``)
	_, _, err := f.rocm().Read(ctx, false)
	require.ErrorIs(t, err, context.Canceled)
	assert.NoFileExists(t, filepath.Join(f.dir, "calls"))
}

func TestErrorsKeepTheirCauses(t *testing.T) {
	_, _, err := newFake(t, "rocm-smi", `echo '{"card0": {'`).rocm().Read(bounded(t), false)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, _, err = newFake(t, "amd-smi", `echo '{"x": 1}'`).amd().Read(bounded(t), false)
	require.ErrorIs(t, err, errNoList)
}
