// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfiletest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree writes files below a new directory.
func tree(t *testing.T, files map[string][]byte) string {
	t.Helper()
	directory := t.TempDir()
	for name, data := range files {
		path := filepath.Join(directory, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	return directory
}

const folder = "offline-run-20260102_030405-ab-C_9"

func TestRunsListsTheFiles(t *testing.T) {
	directory := tree(t, map[string][]byte{
		"run-20260102_030405-x/run-x.wandb":             nil,
		folder + "/run-ab-C_9.wandb":                    nil,
		folder + "/run-ab-C_9.wandb.synced":             nil,
		folder + "/files/config.yaml":                   nil,
		"offline-run-20250102_030405-later/other":       nil,
		"offline-run-20250102_030405-later/run-later.w": nil,
		"debug.log":            nil,
		"other/run-some.wandb": nil,
	})
	later := filepath.Join(directory, "offline-run-20250102_030405-later", "run-later.wandb")

	_, err := Runs(directory)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, later)

	require.NoError(t, os.WriteFile(later, nil, 0o600))
	got, err := Runs(directory)
	require.NoError(t, err)
	assert.Equal(t, []string{
		later,
		filepath.Join(directory, folder, "run-ab-C_9.wandb"),
		filepath.Join(directory, "run-20260102_030405-x", "run-x.wandb"),
	}, got)
}

func TestRunsOfAMissingDirectory(t *testing.T) {
	_, err := Runs(filepath.Join(t.TempDir(), "wandb"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestRunsFindsWrongNames(t *testing.T) {
	for name, path := range map[string]string{
		"no time":               "run-x/run-x.wandb",
		"no id":                 "run-20260102_030405-/run-.wandb",
		"a bad id":              "run-20260102_030405-a.b/run-a.b.wandb",
		"a month too many":      "run-20261302_030405-x/run-x.wandb",
		"an hour too many":      "offline-run-20260102_240405-x/run-x.wandb",
		"a time with a part":    "offline-run-20260102_030405.5-x/run-x.wandb",
		"another id":            "run-20260102_030405-x/run-y.wandb",
		"a file without run":    "run-20260102_030405-x/x.wandb",
		"a directory as a file": "run-20260102_030405-x/run-x.wandb/y",
		"a file as a folder":    "run-20260102_030405-x",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Runs(tree(t, map[string][]byte{path: nil}))
			require.Error(t, err)
			require.NotErrorIs(t, err, fs.ErrNotExist)
			assert.Empty(t, got)
		})
	}
}

func TestRunsFindsASecondFile(t *testing.T) {
	_, err := Runs(tree(t, map[string][]byte{folder + "/run-ab-C_9.wandb": nil, folder + "/run-z.wandb": nil}))
	require.ErrorContains(t, err, "run-z.wandb")
}

func TestCheckFolderComparesTheIDs(t *testing.T) {
	const file = folder + "/run-ab-C_9.wandb"
	for name, test := range map[string]struct {
		files map[string][]byte
		path  string
		want  string // of the error, empty for none
	}{
		"all agree":         {map[string][]byte{file: begun().data}, file, ""},
		"a file that grows": {map[string][]byte{file: begun().chunk(2, gpu(3)).data}, file, ""},
		"no run record":     {map[string][]byte{file: newFile().add(header(1)).data}, file, "no run record"},
		"not a log":         {map[string][]byte{file: []byte("log")}, file, "the file starts with"},
		"no file":           {map[string][]byte{folder + "/x": nil}, file, "not exist"},
		"another file":      {map[string][]byte{file: begun().data}, folder + "/run-x.wandb", "the folder is that of run-ab-C_9.wandb"},
		"another folder": {
			map[string][]byte{"run-20260102_030405-x/run-ab-C_9.wandb": begun().data},
			"run-20260102_030405-x/run-ab-C_9.wandb", "does not belong",
		},
		"another run": {
			map[string][]byte{"run-20260102_030405-x/run-x.wandb": begun().data},
			"run-20260102_030405-x/run-x.wandb", `the run record has the id "ab-C_9"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckFolder(filepath.Join(tree(t, test.files), filepath.FromSlash(test.path)))
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestReadRunsReadsAndChecksAll(t *testing.T) {
	const later = "offline-run-20260203_040506-ab-C_9/run-ab-C_9.wandb"
	directory := tree(t, map[string][]byte{
		later: begun().add(gpu(3)).data, folder + "/run-ab-C_9.wandb": begun().chunk(2, gpu(3)).data,
	})
	files, err := ReadRuns(directory)
	require.NoError(t, err)
	require.Len(t, files, 2)
	assert.True(t, files[0].Truncated)
	assert.Equal(t, []string{"61"}, Texts("gpu.0.temp", files...))

	for want, files := range map[string]map[string][]byte{
		"the file starts with":       {later: []byte("log")},
		`the run record has the id`:  {"run-20260102_030405-x/run-x.wandb": begun().data},
		"is not the name of a run's": {"run-x/run-x.wandb": begun().data},
		"no run record":              {later: newFile().add(header(1)).data},
	} {
		_, err := ReadRuns(tree(t, files))
		require.ErrorContains(t, err, want)
	}
}

func TestReadFileNamesTheFile(t *testing.T) {
	directory := tree(t, map[string][]byte{"good": begun().add(gpu(3)).data, "bad": []byte("x")})
	f, err := ReadFile(filepath.Join(directory, "good"))
	require.NoError(t, err)
	assert.Len(t, f.Records, 3)
	_, err = ReadFile(filepath.Join(directory, "bad"))
	require.ErrorContains(t, err, filepath.Join(directory, "bad"))
	_, err = ReadFile(filepath.Join(directory, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestSeriesKeepsTheOrder(t *testing.T) {
	a := parse(t, begun().add(stats(3, item("a", "1"), item("b", "2.50")), stats(4, item("a", "3"))).data)
	b := parse(t, begun().add(of(3, 26, nil), stats(4, item("a", "-1e2")), exit(5)).data)
	sample := func(value float64, text string) Sample { return Sample{Time: statsTime, Value: value, Text: text} }
	assert.Equal(t, map[string][]Sample{
		"a": {sample(1, "1"), sample(3, "3"), sample(-100, "-1e2")},
		"b": {sample(2.5, "2.50")},
	}, Series(a, b))
	assert.Empty(t, Series())
}
