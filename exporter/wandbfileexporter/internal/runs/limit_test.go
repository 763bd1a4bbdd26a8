// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

func limited(bytes int64) func(*Options) { return func(o *Options) { o.MaxTotal = bytes } }

// finishedRun writes a run of so many bytes and returns its path. Its log was changed
// so many seconds after noon.
func (p *place) finishedRun(name string, seconds, bytes int) string {
	p.t.Helper()
	p.write(host(name), padded(float64(seconds), bytes))
	path := p.runs["host "+name].path
	require.NoError(p.t, p.Finish("host "+name))
	changed := noon.Add(time.Duration(seconds) * time.Second)
	require.NoError(p.t, os.Chtimes(path, changed, changed))
	return path
}

// tend looks whatever the time is.
func (p *place) tend() {
	p.t.Helper()
	p.limit.look = true
	require.NoError(p.t, p.Tend(p.t.Context()))
}

func TestTheOldestFinishedRunsGoFirst(t *testing.T) {
	p := newPlace(t, limited(35_000))
	b := p.finishedRun("b", 2, 10_000)
	a := p.finishedRun("a", 1, 10_000)
	c := p.finishedRun("c", 3, 10_000)
	p.tend()
	assert.Zero(t, p.work.Removed)
	p.write(host("open"), padded(4, 10_000))
	p.tend()
	assertMissing(t, filepath.Dir(a))
	assertExists(t, b)
	assert.Equal(t, int64(1), p.work.Removed)
	p.write(host("open"), padded(5, 10_000))
	p.tend()
	assertMissing(t, filepath.Dir(b))
	assertExists(t, c)
	assertExists(t, p.runs["host open"].path)
}

func TestWhatIsNotOursIsNeitherCountedNorRemoved(t *testing.T) {
	p := newPlace(t, limited(30_000))
	other := newPlace(t, in(p.Directory), func(o *Options) { o.Producer.Name = "ours-too" })
	elsewhere := newPlace(t)
	kept := map[string]string{
		"another producer": other.finishedRun("x", 0, 40_000),
		"no log":           put(t, strings.Repeat("x", 40_000), p.Directory, "offline-run-20260101_000000-aaaa", "run-aaaa.wandb"),
		"not the name":     put(t, "x", p.Directory, "offline-run-20260101_000000-bbbb", "run-other.wandb"),
		"a file":           put(t, "x", p.Directory, "offline-run-20260101_000000-cccc"),
		"an online run":    filepath.Join(p.Directory, "run-20260101_000000-dddd", "run-dddd.wandb"),
		"no time":          filepath.Join(p.Directory, "offline-run-20260101-000000-eeee", "run-eeee.wandb"),
		"no such time":     filepath.Join(p.Directory, "offline-run-20261301_000000-ffff", "run-ffff.wandb"),
	}
	ours := p.finishedRun("ours", 1, 20_000)
	data, err := os.ReadFile(ours)
	require.NoError(t, err)
	for _, name := range []string{"an online run", "no time", "no such time"} {
		put(t, string(data), kept[name])
	}
	target := elsewhere.finishedRun("x", 0, 40_000)
	folder := filepath.Join(p.Directory, "offline-run-20260101_000000-"+elsewhere.histories["host x"].id)
	require.NoError(t, os.Symlink(filepath.Dir(target), folder))
	linked := filepath.Join(p.Directory, "offline-run-20260101_000001-gggg", "run-gggg.wandb")
	require.NoError(t, os.Mkdir(filepath.Dir(linked), 0o750))
	require.NoError(t, os.Symlink(target, linked))
	kept["the target of a link"], kept["a linked log"], kept["a linked folder"] = target, linked, folder

	p.tend()
	assertExists(t, ours)
	p.finishedRun("ours", 2, 29_000)
	p.tend()
	assertMissing(t, ours)
	for name, path := range kept {
		_, err := os.Lstat(path)
		require.NoError(t, err, name)
	}
	assert.Equal(t, int64(1), p.work.Removed)
}

func TestWhatOthersPutIntoOurFoldersStays(t *testing.T) {
	p := newPlace(t, limited(10_000))
	log := p.finishedRun("a", 0, 20_000)
	marker := put(t, "", log+".synced")
	before := tree(t, p.Directory)
	delete(before, filepath.Join(filepath.Base(filepath.Dir(log)), filepath.Base(log)))
	p.tend()
	assertExists(t, marker)
	assert.Equal(t, before, tree(t, p.Directory))
	p.tend()
	assert.Equal(t, int64(1), p.work.Removed)
}

func TestAFileThatTookThePlaceOfOursIsNotRemoved(t *testing.T) {
	p := newPlace(t, limited(30_000))
	log := p.finishedRun("a", 0, 20_000)
	p.tend()
	require.True(t, p.limit.ours[filepath.Base(filepath.Dir(log))])
	put(t, strings.Repeat("x", 40_000), log)
	p.tend()
	assertExists(t, log)
}

func TestALinkThatTookThePlaceOfOursIsNotRemoved(t *testing.T) {
	p := newPlace(t, limited(30_000))
	elsewhere := newPlace(t).finishedRun("a", 0, 40_000)
	log := p.finishedRun("a", 0, 20_000)
	p.tend()
	require.NoError(t, os.Remove(log))
	require.NoError(t, os.Symlink(elsewhere, log))
	p.MaxTotal = 1 // the link alone is larger
	p.tend()
	assertExists(t, log)
	assertExists(t, elsewhere)
}

func TestALogThatIsJustBegunIsLookedAtAgain(t *testing.T) {
	p := newPlace(t, limited(10_000))
	log := p.finishedRun("a", 0, 20_000)
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	put(t, "", log)
	p.tend()
	put(t, string(data), log)
	p.tend()
	assertMissing(t, log)
}

func TestOnlyTheLargestOpenRunsAreRetired(t *testing.T) {
	p := newPlace(t, limited(50_000))
	p.write(host("a"), padded(0, 10_000))
	p.write(host("b"), padded(0, 30_000))
	p.write(host("b"), at(5, counted(7, 0)))
	p.write(host("c"), padded(0, 20_000))
	largest := p.runs["host b"].path
	p.tend()
	assertMissing(t, filepath.Dir(largest))
	assert.Len(t, p.runs, 2)
	assert.Equal(t, int64(2), p.work.Opened)
	assert.Equal(t, int64(1), p.work.Removed)

	p.write(host("b"), at(6, counted(9, 0)))
	f := readLog(t, p.runs["host b"].path)
	assert.Equal(t, p.histories["host b"].id+"-2", runOf(t, f).ID)
	assert.Equal(t, noon.Add(5*time.Second), runOf(t, f).StartTime)
	assert.Equal(t, []string{"2"}, wandbfiletest.Texts("network.sent", f), "counters go on")
}

// A limit must hold, too, where nothing comes any more for many runs.
func TestQuietRunsAreRetiredOneAfterTheOther(t *testing.T) {
	p := newPlace(t, limited(50_000))
	for i := range 10 {
		p.write(host(strconv.Itoa(i)), padded(0, 10_000+i))
	}
	p.tend()
	assert.Len(t, p.runs, 4)
	assert.LessOrEqual(t, p.size(), int64(50_000))
}

func TestARecordThatIsBeingWrittenKeepsItsRun(t *testing.T) {
	p := newPlace(t, limited(10_000))
	r := padded(0, 20_000)
	p.write(host("a"), r)
	p.runs["host a"].appended = r // as after an error
	p.tend()
	assert.Len(t, p.runs, 1)
	p.write(host("a"), r)
	assert.Len(t, p.read()[0].Records, 4)
	p.tend()
	assert.Empty(t, p.runs)
}

func TestADirectoryThatIsNotThereTakesNoRoom(t *testing.T) {
	p := newPlace(t, limited(1000))
	p.tend()
	assert.Zero(t, p.logs.Len())
	assertMissing(t, p.Directory)
}

func TestALimitThatCannotBeKeptIsLoggedOnce(t *testing.T) {
	p := newPlace(t, limited(1000))
	put(t, "mine", p.Directory)
	const message = "Cannot keep W&B runs below max_disk_megabytes"
	for range 3 {
		p.tend()
	}
	assert.Equal(t, 1, p.logged(message))
	require.NoError(t, os.Remove(p.Directory))
	p.tend()
	put(t, "mine", p.Directory)
	p.tend()
	assert.Equal(t, 2, p.logged(message))
}

func TestTheDirectoryIsLookedAtNowAndThen(t *testing.T) {
	p := newPlace(t, limited(16*20_000))
	looks := func() bool {
		require.NoError(t, p.Tend(t.Context()))
		return p.limit.looked.Equal(p.now)
	}
	assert.True(t, looks(), "at the start")
	p.now = p.now.Add(time.Second)
	assert.False(t, looks())
	p.write(host("a"), padded(0, 1000))
	assert.True(t, looks(), "after a run has begun")
	p.now = p.now.Add(time.Second)
	p.write(host("a"), padded(1, 10_000))
	assert.False(t, looks())
	p.write(host("a"), padded(2, 10_000))
	assert.True(t, looks(), "after much was written")
	p.now = p.now.Add(lookEvery - 1)
	assert.False(t, looks())
	p.now = p.now.Add(1)
	assert.True(t, looks(), "after a while")
}

// size returns what the logs in a place take.
func (p *place) size() (size int64) {
	p.t.Helper()
	paths, err := filepath.Glob(filepath.Join(p.Directory, "offline-run-*", "run-*.wandb"))
	require.NoError(p.t, err)
	for _, path := range paths {
		info, err := os.Stat(path)
		require.NoError(p.t, err)
		size += info.Size()
	}
	return size
}

// After each look at the directory there is no more than the limit, and what is
// written until the next one is less than a part of it.
func TestTheLimitHolds(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 11))
		limit := int64(20_000 + random.IntN(200_000))
		p := newPlace(t, limited(limit), func(o *Options) {
			o.MaxSize = int64(random.IntN(2)) * (5_000 + random.Int64N(100_000))
			o.MaxAge = time.Hour
		})
		for step := range 400 {
			p.now = p.now.Add(time.Duration(random.IntN(90)) * time.Second)
			seconds := p.now.Sub(noon).Seconds()
			for range random.IntN(3) {
				p.write(host(strconv.Itoa(random.IntN(6))), padded(seconds, random.IntN(1<<random.IntN(15))))
			}
			if random.IntN(10) == 0 {
				require.NoError(t, p.Finish("host "+strconv.Itoa(random.IntN(6))))
			}
			if random.IntN(50) == 0 { // begins anew, with what is there
				require.NoError(t, p.Close())
				p.Store = New(p.Options)
			}
			require.NoError(t, p.Tend(t.Context()))
			require.Less(t, p.size(), limit+limit/lookShare, "seed %d, step %d", seed, step)
			if p.limit.looked.Equal(p.now) && p.limit.grown == 0 {
				require.LessOrEqual(t, p.size(), limit, "seed %d, step %d", seed, step)
			}
		}
		require.Positive(t, p.work.Removed)
		require.NoError(t, p.Close())
		for _, f := range p.read() {
			require.NotNil(t, exitOf(f))
		}
	}
}
