// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

var folderForm = regexp.MustCompile(`^offline-run-20260304_\d{2}0000-[a-z0-9]{12}(-\d+)?$`)

func TestARunHasItsFolderAndRecordsInOrder(t *testing.T) {
	p := newPlace(t)
	p.write(host("a"), at(0, value("cpu", 1)))
	p.write(host("a"), at(61.5, value("cpu", 2)))
	path := logsOf(t, p.Directory)[0]
	assert.Nil(t, exitOf(p.read()[0]), "it goes on")
	require.NoError(t, p.Close())

	folder := filepath.Base(filepath.Dir(path))
	assert.Regexp(t, folderForm, folder)
	assert.Equal(t, noon.Local().Format("20060102_150405"), folder[len("offline-run-"):len("offline-run-20060102_150405")])
	f := readLog(t, path)
	require.Len(t, f.Records, 6, "header, run, environment, two of stats, exit: the reader checks their order")
	assert.Equal(t, "ours 1.2.3", f.Records[0].Header.Producer)
	assert.Equal(t, noon, f.Records[1].Run.StartTime)
	assert.Equal(t, noon, f.Records[2].Environment.StartedAt)
	assert.Equal(t, noon.Add(61500*time.Millisecond), f.Records[4].Stats.Timestamp)
	assert.Equal(t, int32(61), f.Records[5].Exit.Runtime)
	assert.Equal(t, int32(0), f.Records[5].Exit.Code)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, Work{Records: 2, Bytes: info.Size()}, p.work)
}

func TestAFolderThatIsThereIsNotUsed(t *testing.T) {
	p := newPlace(t)
	p.write(host("a"), at(0, value("cpu", 1)))
	require.NoError(t, p.Finish("host a"))
	h := p.histories["host a"]
	theirs := put(t, "theirs", p.Directory, folderPrefix+noon.Local().Format(folderTime)+"-"+h.id+"-2", "run-"+h.id+"-2.wandb")
	before := tree(t, p.Directory)

	r := at(1, value("cpu", 2))
	require.ErrorIs(t, p.Write(host("a"), r), os.ErrExist)
	assert.Equal(t, before, tree(t, p.Directory))
	p.now = p.now.Add(time.Second)
	require.NoError(t, os.RemoveAll(filepath.Dir(theirs)))
	p.write(host("a"), r)
	assert.Len(t, p.read(), 2)
}

func TestTheLinkPointsToTheLatestRunOfAHost(t *testing.T) {
	p := newPlace(t)
	link := filepath.Join(p.Directory, "latest-run")
	workload := host("w")
	workload.Workload = true
	p.write(workload, at(0, value("cpu", 1)))
	assertMissing(t, link)

	for _, name := range []string{"a", "b"} {
		p.write(host(name), at(0, value("cpu", 1)))
		target, err := os.Readlink(link)
		require.NoError(t, err)
		assert.Equal(t, filepath.Base(filepath.Dir(p.runs["host "+name].path)), target)
	}
	for name := range tree(t, p.Directory) {
		assert.NotRegexp(t, `^\.`, name, "nothing is left of making it")
	}
}

func TestTheLinkOfOthersIsLeft(t *testing.T) {
	const theirs = "offline-run-20260101_000000-abcdefgh"
	for name, test := range map[string]struct {
		make func(t *testing.T, directory, link string)
		kept bool
	}{
		"a run of W&B": {func(t *testing.T, directory, link string) {
			t.Helper()
			put(t, "not ours", directory, theirs, "run-abcdefgh.wandb")
			require.NoError(t, os.Symlink(theirs, link))
		}, true},
		"a run of ours": {func(t *testing.T, directory, link string) {
			t.Helper()
			other := newPlace(t, in(directory))
			other.write(host("before"), at(0, value("cpu", 1)))
			require.NoError(t, other.Close())
			assertExists(t, link)
		}, false},
		"a run that is no more": {func(t *testing.T, _, link string) {
			t.Helper()
			require.NoError(t, os.Symlink(theirs, link))
		}, false},
		"something else that is no more": {func(t *testing.T, _, link string) {
			t.Helper()
			require.NoError(t, os.Symlink("my-run", link))
		}, true},
		"a run elsewhere": {func(t *testing.T, _, link string) {
			t.Helper()
			elsewhere := t.TempDir()
			put(t, "not ours", elsewhere, theirs, "run-abcdefgh.wandb")
			require.NoError(t, os.Symlink(filepath.Join(elsewhere, theirs), link))
		}, true},
		"a file": {func(t *testing.T, _, link string) {
			t.Helper()
			put(t, "mine", link)
		}, true},
		"a directory": {func(t *testing.T, _, link string) {
			t.Helper()
			require.NoError(t, os.Mkdir(link, 0o750))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			require.NoError(t, os.Mkdir(p.Directory, 0o750))
			link := filepath.Join(p.Directory, "latest-run")
			test.make(t, p.Directory, link)
			before := tree(t, p.Directory)["latest-run"]
			p.write(host("a"), at(0, value("cpu", 1)))
			after := tree(t, p.Directory)["latest-run"]
			if test.kept {
				assert.Equal(t, before, after)
				return
			}
			assert.Equal(t, "link "+filepath.Base(filepath.Dir(p.runs["host a"].path)), after)
		})
	}
}

func TestADirectoryThatCannotBeUsedIsLeftAsItIs(t *testing.T) {
	for name, path := range map[string][]string{"a file": {"file"}, "below a file": {"file", "wandb"}} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			put(t, "mine", directory, "file")
			p := newPlace(t, in(filepath.Join(append([]string{directory}, path...)...)))
			r := at(0, value("cpu", 1))
			for range 3 {
				require.ErrorContains(t, p.Write(host("a"), r), "making the directory")
			}
			require.NoError(t, p.Tend(t.Context()))
			assert.Equal(t, map[string]string{"file": "file mine"}, tree(t, directory))
			assert.Zero(t, p.work)

			require.NoError(t, os.Remove(filepath.Join(directory, "file")))
			p.write(host("a"), r)
			assert.Equal(t, []string{"1"}, wandbfiletest.Texts("cpu", p.read()...))
			assert.Len(t, p.histories["host a"].id, 12)
		})
	}
}

func TestARunThatIsRemovedGoesOnInANewOne(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, p *place, log string){
		"the log": func(t *testing.T, _ *place, log string) { t.Helper(); require.NoError(t, os.Remove(log)) },
		"the folder": func(t *testing.T, _ *place, log string) {
			t.Helper()
			require.NoError(t, os.RemoveAll(filepath.Dir(log)))
		},
		"the directory": func(t *testing.T, p *place, _ string) {
			t.Helper()
			require.NoError(t, os.RemoveAll(p.Directory))
		},
		"the directory by another name": func(t *testing.T, p *place, _ string) {
			t.Helper()
			require.NoError(t, os.Rename(p.Directory, p.Directory+"-old"))
		},
		"the log by another file": func(t *testing.T, _ *place, log string) {
			t.Helper()
			require.NoError(t, os.Remove(log))
			put(t, "", log)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.write(host("a"), at(0, value("cpu", 1)))
			first := p.runs["host a"].path
			remove(t, p, first)
			p.write(host("a"), at(1, value("cpu", 2)))
			p.write(host("a"), at(2, value("cpu", 3)))
			assert.Equal(t, 1, p.logged("was removed while it was written"))
			assert.Equal(t, int64(1), p.work.Opened)

			second := p.runs["host a"].path
			assert.Equal(t, p.histories["host a"].id+"-2", runOf(t, readLog(t, second)).ID)
			require.NoError(t, p.Close())
			f := readLog(t, second)
			assert.Equal(t, []string{"2", "3"}, wandbfiletest.Texts("cpu", f))
			assert.Equal(t, noon, runOf(t, f).StartTime)
			assert.NotNil(t, exitOf(f))
		})
	}
}

func TestADirectoryThatBecomesAFileIsAnErrorUntilItIsGone(t *testing.T) {
	p := newPlace(t)
	p.write(host("a"), at(0, value("cpu", 1)))
	require.NoError(t, os.RemoveAll(p.Directory))
	put(t, "mine", p.Directory)
	r := at(1, value("cpu", 2))
	require.Error(t, p.Write(host("a"), r))
	require.Error(t, p.Write(host("a"), r))
	assert.Equal(t, 1, p.logged("was removed while it was written"))
	assert.Zero(t, p.work.Opened)

	require.NoError(t, os.Remove(p.Directory))
	p.write(host("a"), r)
	assert.Equal(t, []string{"2"}, wandbfiletest.Texts("cpu", p.read()...))
}

func TestSyncPolicies(t *testing.T) {
	dirty := func(p *place) bool { return p.runs["host a"].dirty }
	for policy, test := range map[Sync]struct{ begun, written, soon, later bool }{
		SyncNever:    {begun: true, written: true, soon: true, later: true},
		SyncInterval: {begun: true, written: true, soon: true, later: false},
		SyncRecord:   {},
	} {
		t.Run(string(policy), func(t *testing.T) {
			p := newPlace(t, func(o *Options) { o.Sync = policy })
			p.write(host("a"), at(0, value("cpu", 1)))
			assert.Equal(t, test.begun, dirty(p))
			assert.Equal(t, policy == SyncNever, p.runs["host a"].synced.IsZero(), "a new log and its name are safe at once")
			p.write(host("a"), at(1, value("cpu", 2)))
			assert.Equal(t, test.written, dirty(p))
			p.now = p.now.Add(p.Interval - 1)
			require.NoError(t, p.Tend(t.Context()))
			assert.Equal(t, test.soon, dirty(p))
			p.now = p.now.Add(1)
			require.NoError(t, p.Tend(t.Context()))
			assert.Equal(t, test.later, dirty(p))

			r := p.runs["host a"]
			require.NoError(t, p.Finish("host a"))
			assert.Equal(t, policy == SyncNever, r.dirty, "the end is safe, too")
		})
	}
}

func TestWhatThereIsNoTimeForIsDoneTheNextTime(t *testing.T) {
	p := newPlace(t, limited(10_000), func(o *Options) { o.Sync = SyncInterval })
	finished := p.finishedRun("a", 0, 20_000)
	p.write(host("b"), at(0, value("cpu", 1)))
	p.write(host("b"), at(1, value("cpu", 2)))
	p.write(host("c"), padded(1, 20_000))
	largest := p.runs["host c"].path
	p.now = p.now.Add(p.Interval)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, p.Tend(over))
	assertExists(t, finished)
	assertExists(t, largest)
	assert.True(t, p.runs["host b"].dirty)
	require.NoError(t, p.Tend(t.Context()))
	assertMissing(t, finished)
	assertMissing(t, largest)
	assert.False(t, p.runs["host b"].dirty)
	assert.Zero(t, p.logged("Cannot keep"))
}

func TestAFailedSyncIsTriedAgain(t *testing.T) {
	p := newPlace(t, func(o *Options) { o.Sync = SyncRecord })
	p.write(host("a"), at(0, value("cpu", 1)))
	r := p.runs["host a"]
	working := r.file
	reading, err := os.Open(r.path)
	require.NoError(t, err)
	require.NoError(t, reading.Close())
	record := at(1, value("cpu", 2))
	r.file = reading
	require.Error(t, p.Write(host("a"), record))
	r.file = working
	p.write(host("a"), record)
	require.NoError(t, p.Close())
	assert.Equal(t, []string{"1", "2"}, wandbfiletest.Texts("cpu", p.read()...))
	assert.Equal(t, int64(2), p.work.Records)
}
