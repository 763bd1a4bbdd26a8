// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

// environ is the content of /proc/PID/environ.
func environ(lines ...string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\x00") + "\x00"
}

func parsedEnviron(content string) map[string]string {
	var all environments
	e := all.parse([]byte(content))
	if e == nil {
		return nil
	}
	return e.values
}

func TestEnvironment(t *testing.T) {
	tests := []struct {
		name    string
		content string
		want    map[string]string
	}{
		{"nothing", "", nil},
		{"nothing that is allowed", environ("WANDB_API_KEY=secret", "PATH=/bin", "WANDB_PROJECT_X=1", "XWANDB_PROJECT=1", "wandb_project=1"), nil},
		{"what is allowed alone", environ("AWS_SECRET_ACCESS_KEY=secret", "WANDB_PROJECT=p", "WANDB_API_KEY=secret"), map[string]string{"WANDB_PROJECT": "p"}},
		{"a value with =", environ("WANDB_PROJECT=a=b=c"), map[string]string{"WANDB_PROJECT": "a=b=c"}},
		{"an empty value", environ("WANDB_PROJECT="), map[string]string{"WANDB_PROJECT": ""}},
		{"no value", environ("WANDB_PROJECT", "=WANDB_PROJECT=x"), nil},
		{"the first of two counts", environ("RANK=1", "RANK=2", "RANK=3"), map[string]string{"RANK": "1"}},
		{"the first of two counts though empty", environ("RANK=", "RANK=2"), map[string]string{"RANK": ""}},
		{"a last line that is cut off", "RANK=1\x00WORLD_SIZE=12", map[string]string{"RANK": "1"}},
		{"nothing but a line that is cut off", "WORLD_SIZE=12", nil},
		{"empty lines between", "\x00\x00RANK=1\x00\x00\x00LOCAL_RANK=2\x00\x00", map[string]string{"RANK": "1", "LOCAL_RANK": "2"}},
		{"control characters", environ("WANDB_PROJECT=a\nb\tc\x1b[31md\u0085e\u2028f\u2029g\x7f"), map[string]string{"WANDB_PROJECT": "abc[31mdefg"}},
		{"a secret behind a line break is a part of the value", environ("WANDB_PROJECT=a\nWANDB_API_KEY=b"), map[string]string{"WANDB_PROJECT": "aWANDB_API_KEY=b"}},
		{"not UTF-8", environ("WANDB_PROJECT=a\xff\xfeb"), map[string]string{"WANDB_PROJECT": "a\uFFFDb"}},
		{"too long", environ("WANDB_PROJECT=" + strings.Repeat("x", 300)), map[string]string{"WANDB_PROJECT": strings.Repeat("x", 256)}},
		{"just not too long", environ("WANDB_PROJECT=" + strings.Repeat("x", 256)), map[string]string{"WANDB_PROJECT": strings.Repeat("x", 256)}},
		{"cut where a character ends", environ("WANDB_PROJECT=" + strings.Repeat("x", 254) + "世界"), map[string]string{"WANDB_PROJECT": strings.Repeat("x", 254)}},
		{"cut in the longest of characters", environ("WANDB_PROJECT=x" + strings.Repeat("😀", 100)), map[string]string{"WANDB_PROJECT": "x" + strings.Repeat("😀", 63)}},
		{"far too long", environ("WANDB_PROJECT=" + strings.Repeat("世", 50_000)), map[string]string{"WANDB_PROJECT": strings.Repeat("世", 85)}},
		{"the name of a pod", environ("HOSTNAME=pod-1", "NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2"), map[string]string{"HOSTNAME": "pod-1", "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, parsedEnviron(tt.content))
		})
	}
}

// What is remembered is bounded, whatever a stranger puts there.
func TestEnvironmentsAreSmall(t *testing.T) {
	var all environments
	var lines []string
	for range 1000 {
		lines = append(lines, "RANK="+strings.Repeat("1", 100), "WANDB_PROJECT="+strings.Repeat("p", 10_000))
	}
	require.NotNil(t, all.parse([]byte(environ(lines...))))
	for key := range all.known {
		assert.LessOrEqual(t, len(key), 2*maxValue)
	}
}

func TestEqualEnvironmentsAreOne(t *testing.T) {
	var all environments
	first := all.parse([]byte(environ("RANK=1", "HOME=/a")))
	assert.Same(t, first, all.parse([]byte(environ("TERM=x", "RANK=1"))))
	assert.NotSame(t, first, all.parse([]byte(environ("RANK=2"))))
	assert.Same(t, first, all.parse([]byte(environ("RANK=\x011\n", "HOME=/b"))), "but for what nobody can print")
	long := all.parse([]byte(environ("WANDB_PROJECT=" + strings.Repeat("x", maxValue))))
	assert.Same(t, long, all.parse([]byte(environ("WANDB_PROJECT="+strings.Repeat("x", 2*maxValue)))), "and for what is cut off")
}

// However many environments there were, what is remembered has a bound.
func TestManyEnvironments(t *testing.T) {
	var all environments
	most := 0
	for i := range 3 * maxEnvironments / maxValue {
		all.parse([]byte(environ("RANK="+strconv.Itoa(i), "WANDB_PROJECT="+strings.Repeat("x", maxValue))))
		most = max(most, all.size)
	}
	assert.Greater(t, most, maxEnvironments/2)
	assert.Less(t, most, maxEnvironments+2*maxValue)
	size := 0
	for key := range all.known {
		size += len(key)
	}
	assert.Equal(t, all.size, size)
}

func TestPlaceInAJob(t *testing.T) {
	known := identity.Known
	tests := []struct {
		name  string
		lines []string
		want  Job
	}{
		{"none", []string{"HOSTNAME=x"}, Job{}},
		{"torchrun", []string{"RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=8"}, Job{Rank: known(3), LocalRank: known(1), WorldSize: known(8)}},
		{"Open MPI", []string{"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_SIZE=8"}, Job{Rank: known(3), LocalRank: known(1), WorldSize: known(8)}},
		{"MPICH", []string{"PMI_RANK=3", "MPI_LOCALRANKID=1", "PMI_SIZE=8"}, Job{Rank: known(3), LocalRank: known(1), WorldSize: known(8)}},
		{
			"Slurm",
			[]string{"SLURM_JOB_ID=77", "SLURM_STEP_ID=0", "SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NTASKS=8"},
			Job{Rank: known(3), LocalRank: known(1), WorldSize: known(8), SlurmJob: "77", SlurmStep: "0", slurmRank: true},
		},
		{
			"torchrun in Slurm",
			[]string{"SLURM_JOB_ID=77", "SLURM_PROCID=3", "SLURM_NTASKS=8", "RANK=5", "WORLD_SIZE=64"},
			Job{Rank: known(5), WorldSize: known(64), SlurmJob: "77"},
		},
		{"torchrun in Open MPI", []string{"OMPI_COMM_WORLD_RANK=1", "RANK=5"}, Job{Rank: known(5)}},
		{"Open MPI in PMI", []string{"PMI_RANK=1", "PMI_SIZE=2", "OMPI_COMM_WORLD_RANK=5"}, Job{Rank: known(5)}},
		{"PMI in Slurm", []string{"SLURM_PROCID=1", "PMI_RANK=5", "SLURM_NTASKS=2"}, Job{Rank: known(5)}},
		{"a local rank alone", []string{"LOCAL_RANK=2", "WORLD_SIZE=8"}, Job{LocalRank: known(2), WorldSize: known(8)}},
		{"a size is nobody's place", []string{"WORLD_SIZE=8", "SLURM_NTASKS=4"}, Job{}},
		{"numbers that are none", []string{"RANK=x", "LOCAL_RANK=-1", "WORLD_SIZE=8"}, Job{}},
		{"numbers that are none make way", []string{"RANK=", "SLURM_PROCID=4"}, Job{Rank: known(4), slurmRank: true}},
		{"signs, blanks and bases", []string{"RANK=+1", "LOCAL_RANK= 1", "WORLD_SIZE=0x8", "PMI_RANK=1_0"}, Job{}},
		{"too large", []string{"RANK=99999999999", "LOCAL_RANK=4294967296"}, Job{}},
		{"zeros in front", []string{"RANK=007"}, Job{Rank: known(7)}},
		{"a job alone", []string{"SLURM_JOB_ID=77"}, Job{SlurmJob: "77"}},
		{"a step without a job", []string{"SLURM_STEP_ID=3"}, Job{}},
		{"an interactive step", []string{"SLURM_JOB_ID=77", "SLURM_STEP_ID=4294967290"}, Job{SlurmJob: "77", SlurmStep: "interactive"}},
		{"a batch step", []string{"SLURM_JOB_ID=77", "SLURM_STEP_ID=4294967291"}, Job{SlurmJob: "77", SlurmStep: "batch"}},
		{"an extern step", []string{"SLURM_JOB_ID=77", "SLURM_STEP_ID=4294967292"}, Job{SlurmJob: "77", SlurmStep: "extern"}},
		{"a step by a name", []string{"SLURM_JOB_ID=77", "SLURM_STEP_ID=batch"}, Job{SlurmJob: "77"}},
		{"a job that is no number", []string{"SLURM_JOB_ID=7a", "SLURM_STEP_ID=0"}, Job{}},
		{"a job with a sign", []string{"SLURM_JOB_ID=-7", "SLURM_STEP_ID=0"}, Job{}},
		{"a job with zeros in front", []string{"SLURM_JOB_ID=007", "SLURM_STEP_ID=0"}, Job{}},
		{"a job that is too large", []string{"SLURM_JOB_ID=4294967296", "SLURM_STEP_ID=0"}, Job{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var all environments
			assert.Equal(t, tt.want, all.parse([]byte(environ(tt.lines...))).place())
		})
	}
	assert.Zero(t, (*environment)(nil).place())
	assert.Empty(t, (*environment)(nil).get("RANK"))
}

func TestUserNames(t *testing.T) {
	const passwd = "root:x:0:0:root:/root:/bin/sh\n#comment\n\nbroken:x\n::1001:::\nann:x:1000:1000:A:/:/bin/sh\nbob:x:1000:1::/:\nlast:x:7:7"
	for id, want := range map[string]string{"0": "root", "1000": "ann", "7": "last", "1001": "", "100": "", "": "", "x": ""} {
		assert.Equal(t, want, passwdName([]byte(passwd), id), id)
	}
}

func TestCommandsKeepNoArguments(t *testing.T) {
	for cmdline, want := range map[string]string{
		"":                                     "",
		"\x00":                                 "",
		"/usr/bin/python3\x00-c\x00x":          "/usr/bin/python3",
		"/opt/my tools/train\x00x":             "/opt/my",
		"python train.py --api-key=sk-1":       "python", // its title
		"sshd: ann [priv]":                     "sshd:",
		"a\x1bb\nc\x00":                        "abc",
		strings.Repeat("a", 300) + "\x00":      strings.Repeat("a", 256),
		"ray::train -k secret\x00\x00\x00\x00": "ray::train",
	} {
		assert.Equal(t, want, program([]byte(cmdline)))
	}
}

// requireClean is what holds for all texts of strangers that are kept.
func requireClean(t testing.TB, text string) {
	t.Helper()
	require.LessOrEqual(t, len(text), maxValue)
	require.True(t, utf8.ValidString(text), "%q", text)
	require.False(t, strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || (r >= 0x7f && r < 0xa0) || r == 0x2028 || r == 0x2029
	}), "%q", text)
}

func FuzzEnvironment(f *testing.F) {
	f.Add([]byte(environ("RANK=1", "WANDB_API_KEY=x", "WANDB_PROJECT=a=b", "RANK=2")))
	f.Add([]byte("RANK=1\x00WORLD_SIZE=12"))
	f.Add([]byte("WANDB_PROJECT=\xff\xfe\n\x1b\x00=\x00\x00"))
	f.Add([]byte(environ("SLURM_JOB_ID=\u2028x", "SLURM_PROCID=18446744073709551616", "LOCAL_RANK=-1")))
	f.Fuzz(func(t *testing.T, content []byte) {
		var all environments
		e := all.parse(content)
		if e == nil {
			return
		}
		require.NotEmpty(t, e.values)
		for name, value := range e.values {
			require.NotZero(t, allowed[name], "%q is not allowed", name)
			require.Contains(t, "\x00"+string(content), "\x00"+name+"=")
			requireClean(t, value)
		}
		for _, n := range []identity.Number{e.job.Rank, e.job.LocalRank, e.job.WorldSize} {
			require.GreaterOrEqual(t, n.Value, 0)
		}
		require.Same(t, e, all.parse(content))
	})
}

func FuzzClean(f *testing.F) {
	f.Add("a\xffb\u2028\x1b")
	f.Add(strings.Repeat("😀", 100))
	f.Fuzz(func(t *testing.T, text string) {
		cleaned := clean(text)
		requireClean(t, cleaned)
		require.Equal(t, cleaned, clean(cleaned))
	})
}

func FuzzCommand(f *testing.F) {
	f.Add([]byte("python train.py --api-key=x\x00"))
	f.Add([]byte("a\x00-b"))
	f.Fuzz(func(t *testing.T, cmdline []byte) {
		command := program(cmdline)
		requireClean(t, command)
	})
}

func FuzzUserNames(f *testing.F) {
	f.Add([]byte("root:x:0:0:root:/root:/bin/sh\n"), "0")
	f.Add([]byte(":::\n"), "")
	f.Fuzz(func(t *testing.T, content []byte, id string) {
		name := passwdName(content, id)
		require.NotContains(t, name, ":")
		require.NotContains(t, name, "\n")
		require.Contains(t, string(content), name)
	})
}
