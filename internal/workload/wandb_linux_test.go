// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestArgumentsOfACore(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want coreArguments
	}{
		{"none", nil, coreArguments{}},
		{"as W&B starts it", []string{"/x/wandb/bin/wandb-core", "--port-filename", "/tmp/port-9.txt", "--pid", "42"}, coreArguments{pid: 42}},
		{"with an equals sign", []string{"wandb-core", "--pid=42"}, coreArguments{pid: 42}},
		{"with one dash", []string{"wandb-core", "-pid", "42", "-detached"}, coreArguments{pid: 42, detached: true}},
		{"with one dash and an equals sign", []string{"wandb-core", "-pid=42", "-detached=1"}, coreArguments{pid: 42, detached: true}},
		{"detached", []string{"wandb-core", "--pid", "42", "--detached", "--idle-timeout", "10m"}, coreArguments{pid: 42, detached: true}},
		{"detached by value", []string{"wandb-core", "--detached=true", "--pid=42"}, coreArguments{pid: 42, detached: true}},
		{"not detached", []string{"wandb-core", "--detached=false", "--pid=42"}, coreArguments{pid: 42}},
		{"detached or what", []string{"wandb-core", "--detached=what"}, coreArguments{}},
		{"run by an interpreter", []string{"/usr/bin/python3", "/x/wandb-core", "--pid", "42", "--detached"}, coreArguments{pid: 42, detached: true}},
		{"without its value", []string{"wandb-core", "--pid"}, coreArguments{}},
		{"another flag in place of its value", []string{"wandb-core", "--pid", "--detached", "--pid", "7"}, coreArguments{pid: 7}},
		{"an empty value", []string{"wandb-core", "--pid=", "7"}, coreArguments{}},
		{"no number", []string{"wandb-core", "--pid", "x7"}, coreArguments{}},
		{"not a pid", []string{"wandb-core", "--pid=0", "--pid=-4", "--pid", "99999999999999999999"}, coreArguments{}},
		{"the last counts", []string{"wandb-core", "--pid", "7", "--pid=8"}, coreArguments{pid: 8}},
		{"words that only look like it", []string{"wandb-core", "pid=7", "---pid=7", "--pid-file=7", "pid", "9", "--pids=7"}, coreArguments{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, parseCoreArguments([]byte(environ(tt.args...))))
			assert.Equal(t, tt.want, parseCoreArguments([]byte(strings.Join(tt.args, "\x00"))), "without the last NUL")
		})
	}
}

// Of a command line that is longer than what is read the last word may be the
// beginning of a longer one.
func TestArgumentsThatAreCutOff(t *testing.T) {
	line := environ("wandb-core", strings.Repeat("x", maxCommand-len("wandb-core")-2-len("--pid=12"))) + "--pid=12"
	require.Len(t, line, maxCommand)
	assert.Zero(t, parseCoreArguments([]byte(line)))
}

func TestLiveRuns(t *testing.T) {
	const at = "/home/ann/wandb/"
	online := func(id, stamp string) Run { return Run{ID: id, Mode: "online", Started: stamp} }
	tests := []struct {
		name string
		open []string
		want []Run
	}{
		{"none", nil, nil},
		{"nothing of a run", []string{"socket:[12]", "pipe:[3]", "/dev/null", "anon_inode:[eventpoll]", "", "/", ".wandb", "run-.wandb"}, nil},
		{"online", []string{at + "run-20260102_030405-abc/run-abc.wandb"}, []Run{online("abc", "20260102_030405")}},
		{"offline", []string{at + "offline-run-20260102_030405-abc/run-abc.wandb"}, []Run{{ID: "abc", Mode: "offline", Started: "20260102_030405"}}},
		{"an id with dashes", []string{at + "run-20260102_030405-my-run-1/run-my-run-1.wandb"}, []Run{online("my-run-1", "20260102_030405")}},
		{"an id that looks like a run", []string{at + "run-20260102_030405-run-x/run-run-x.wandb"}, []Run{online("run-x", "20260102_030405")}},
		{"a folder with a suffix", []string{at + "run-20260102_030405-abc-2/run-abc.wandb"}, []Run{online("abc", "20260102_030405")}},
		{"deleted", []string{at + "run-20260102_030405-abc/run-abc.wandb (deleted)"}, nil},
		{
			"deleted, and its log still open",
			[]string{at + "run-20260102_030405-abc/logs/debug-internal.log", at + "run-20260102_030405-abc/run-abc.wandb (deleted)"},
			nil,
		},
		{"the log alone", []string{at + "run-20260102_030405-abc/logs/debug-internal.log"}, []Run{online("abc", "20260102_030405")}},
		{"a log that was deleted", []string{at + "run-20260102_030405-abc/logs/debug-internal.log (deleted)"}, nil},
		{"the log of somebody else", []string{at + "run-20260102_030405-abc/debug-internal.log", at + "logs/debug-internal.log", "/logs/debug-internal.log", "debug-internal.log"}, nil},
		{
			"both are one run",
			[]string{at + "run-20260102_030405-abc/logs/debug-internal.log", at + "run-20260102_030405-abc/run-abc.wandb"},
			[]Run{online("abc", "20260102_030405")},
		},
		{
			"open twice is one run",
			[]string{at + "run-20260102_030405-abc/run-abc.wandb", at + "run-20260102_030405-abc/run-abc.wandb"},
			[]Run{online("abc", "20260102_030405")},
		},
		{
			"several, in the order of their start",
			[]string{at + "run-20260102_030406-aaa/run-aaa.wandb", at + "run-20260102_030405-zzz/run-zzz.wandb", at + "run-20260102_030406-bbb/logs/debug-internal.log"},
			[]Run{online("zzz", "20260102_030405"), online("aaa", "20260102_030406"), online("bbb", "20260102_030406")},
		},
		{"a strange folder", []string{"/tmp/run-abc.wandb", "run-x.wandb"}, []Run{{ID: "abc"}, {ID: "x"}}},
		{"a folder with half a stamp", []string{at + "run-2026_0304-abc/run-abc.wandb", at + "xrun-20260102_030405-b/run-b.wandb"}, []Run{{ID: "abc"}, {ID: "b"}}},
		{"an id that nobody can print", []string{at + "run-20260102_030405-x/run-a\x1bb\n.wandb", at + "run-20260102_030405-y/run-\x1b.wandb"}, []Run{online("ab", "20260102_030405")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := liveRuns(tt.open)
			slices.Reverse(tt.open)
			assert.Equal(t, got, liveRuns(tt.open), "in whatever order")
			if len(tt.want) == 0 {
				assert.Empty(t, got)
				return
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

// Who only reads the log of a run, as to upload it later, is not the run.
func TestLogsThatAreOnlyRead(t *testing.T) {
	log, message := runFile("abc", 0), "/home/ann/wandb/run-20260102_030400-abc/logs/debug-internal.log"
	const reads, writes, both = "flags:\t02100000\n", "flags:\t02102001\n", "flags:\t0100002\n"
	type file struct{ target, fdinfo string }
	tests := []struct {
		name  string
		files []file
		want  int
	}{
		{"written", []file{{log, writes}}, 1},
		{"read and written", []file{{log, both}}, 1},
		{"only read", []file{{log, reads}}, 0},
		{"only read, and the log of messages written", []file{{log, reads}, {message, writes}}, 0},
		{"only read, and deleted", []file{{log + deletedSuffix, reads}}, 0},
		{"read by one descriptor and written by another", []file{{log, reads}, {log, writes}}, 1},
		{"another is read", []file{{log, writes}, {runFile("xyz", 1), reads}}, 1},
		{"not told at all", []file{{log, ""}}, 1},
		{"not told", []file{{log, "pos:\t0\n"}}, 1},
		{"not understood", []file{{log, "flags:\t09\n"}}, 1},
		{"nothing in it", []file{{log, "flags:\n"}}, 1},
		{"of other files it does not matter", []file{{message, reads}}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			f.put(systemd, python(20, 1))
			p := core(21, 20, 20)
			p.open = nil
			for _, file := range tt.files {
				p.open = append(p.open, file.target)
			}
			f.put(p)
			for i, file := range tt.files {
				if file.fdinfo != "" {
					f.write("21/fdinfo/"+strconv.Itoa(i), file.fdinfo)
				}
			}
			v := f.discover(Options{Discover: everything})
			require.Len(t, v.Runs, tt.want)
			if tt.want > 0 {
				assert.Equal(t, "abc", v.Runs[0].ID)
			}
		})
	}
}

func FuzzCoreArguments(f *testing.F) {
	f.Add([]byte(environ("wandb-core", "--pid", "42", "--detached")))
	f.Add([]byte("x\x00--pid=42"))
	f.Add([]byte("--pid\x00-pid=-9\x00--detached=\x00"))
	f.Fuzz(func(t *testing.T, cmdline []byte) {
		a := parseCoreArguments(cmdline)
		require.GreaterOrEqual(t, a.pid, 0)
		if a.pid > 0 {
			require.Contains(t, string(cmdline), "pid")
			require.Regexp(t, `(^|[^0-9])0*`+strconv.Itoa(a.pid), string(cmdline))
		}
		if a.detached {
			require.Contains(t, string(cmdline), "-detached")
		}
	})
}

func FuzzLiveRuns(f *testing.F) {
	f.Add("/w/run-20260102_030405-a-b/run-a-b.wandb\x00/w/run-20260102_030405-a-b/logs/debug-internal.log")
	f.Add("/w/offline-run-20260102_030405-x/run-x.wandb (deleted)\x00run-.wandb\x00socket:[1]")
	f.Add("/w/run-20260102_030405-\x1b/logs/debug-internal.log\x00run-\xff.wandb")
	stamp := regexp.MustCompile(`^\d{8}_\d{6}$`)
	f.Fuzz(func(t *testing.T, list string) {
		open := strings.Split(list, "\x00")
		runs := liveRuns(open)
		require.LessOrEqual(t, len(runs), len(open))
		require.True(t, slices.IsSortedFunc(runs, byStart))
		for i := range runs {
			r := &runs[i]
			require.NotEmpty(t, r.ID)
			requireClean(t, r.ID)
			require.Contains(t, []string{"", "online", "offline"}, r.Mode)
			require.Equal(t, r.Mode == "", r.Started == "")
			if r.Started != "" {
				require.Regexp(t, stamp, r.Started)
			}
		}
		slices.Reverse(open)
		require.Equal(t, runs, liveRuns(open))
	})
}
