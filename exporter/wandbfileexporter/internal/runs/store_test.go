// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

// chain returns the runs of a host in their order, after it was checked that each
// goes on where the one before ended.
func (p *place) chain(key string) []*wandbfiletest.File {
	p.t.Helper()
	h := p.histories[key]
	var files []*wandbfiletest.File
	for i := 1; i <= h.number; i++ {
		id := h.id
		if i > 1 {
			id = fmt.Sprintf("%s-%d", h.id, i)
		}
		found, err := filepath.Glob(filepath.Join(p.Directory, "offline-run-*", "run-"+id+".wandb"))
		require.NoError(p.t, err)
		require.Len(p.t, found, 1)
		f := readLog(p.t, found[0])
		assert.Equal(p.t, id, runOf(p.t, f).ID)
		if i > 1 {
			before := files[i-2]
			exit := exitOf(before)
			require.NotNil(p.t, exit)
			last := before.Records[len(before.Records)-2].Stats.Timestamp
			assert.Equal(p.t, last, runOf(p.t, f).StartTime)
			assert.Equal(p.t, int32(last.Sub(runOf(p.t, before).StartTime)/time.Second), exit.Runtime)
			assert.Equal(p.t, runOf(p.t, before).Group, runOf(p.t, f).Group)
		}
		files = append(files, f)
	}
	return files
}

func TestNoLogIsLargerThanTheLimit(t *testing.T) {
	const limit = 20_000
	random := rand.New(rand.NewPCG(9, 10))
	p := newPlace(t, func(o *Options) { o.MaxSize = limit })
	for second := range 300 {
		size := random.IntN(1 << random.IntN(15)) // some are much larger than those before
		r := padded(float64(second), size)
		r.Items = append(r.Items, value("n", int64(second)))
		p.write(host("a"), r)
	}
	require.NoError(t, p.Close())
	files := p.chain("host a")
	assert.Greater(t, len(files), 10)
	next := 0
	for _, f := range files {
		assert.LessOrEqual(t, f.Good, int64(limit))
		for _, text := range wandbfiletest.Texts("n", f) {
			assert.Equal(t, strconv.Itoa(next), text)
			next++
		}
	}
	assert.Equal(t, 300, next)
}

func TestALogIsNearlyAsLargeAsTheLimit(t *testing.T) {
	p := newPlace(t, func(o *Options) { o.MaxSize = 1 << 20 })
	for second := range 400 {
		p.write(host("a"), padded(float64(second), 8000))
	}
	for _, f := range p.chain("host a")[:2] {
		assert.Greater(t, f.Good, int64(1<<20-20_000))
	}
}

func TestARecordBeyondTheLimitHasItsOwnRun(t *testing.T) {
	p := newPlace(t, func(o *Options) { o.MaxSize = 20_000 })
	p.write(host("a"), at(0, value("n", 0)))
	p.write(host("a"), padded(1, 50_000))
	p.write(host("a"), at(2, value("n", 2)))
	p.write(host("a"), at(3, value("n", 3)))
	var counts []int
	for _, f := range p.chain("host a") {
		counts = append(counts, len(wandbfiletest.Series(f)["n"]))
	}
	assert.Equal(t, []int{1, 0, 2}, counts)
}

func TestAnOldRunEnds(t *testing.T) {
	p := newPlace(t, func(o *Options) { o.MaxAge = time.Hour })
	for _, s := range []int{0, 1800, 3599, 3600, 7199, 7200} {
		p.now = noon.Add(time.Duration(s) * time.Second)
		p.write(host("a"), at(float64(s), value("n", int64(s))))
		p.write(host("b"), at(float64(s), value("n", int64(s))))
	}
	var values [][]string
	for _, f := range p.chain("host a") {
		values = append(values, wandbfiletest.Texts("n", f))
	}
	assert.Equal(t, [][]string{{"0", "1800", "3599"}, {"3600", "7199"}, {"7200"}}, values)
	assert.Len(t, p.chain("host b"), 3)
	assert.Len(t, p.read(), 6)
}

func TestAClockThatIsSetBackMakesNoRunThatBeginsAfterItsRecords(t *testing.T) {
	p := newPlace(t)
	p.write(host("a"), at(3600, counted(1, 0)))
	require.NoError(t, p.finish("host a"))
	p.write(host("a"), at(0, counted(3, 0)))
	files := p.read()
	assert.Equal(t, noon, runOf(t, files[1]).StartTime)
	assert.Equal(t, []string{"0", "2"}, wandbfiletest.Texts("network.sent", files...))
	p.write(host("a"), at(-60, counted(3, 0)))
	require.NoError(t, p.Close())
	assert.Zero(t, exitOf(p.read()[1]).Runtime)
}

func TestARunBeginsWithItsFirstCounter(t *testing.T) {
	p := newPlace(t)
	r := at(10, counted(7, 2))
	r.Begin = noon.Add(2 * time.Second)
	p.write(host("a"), r)
	f := p.read()[0]
	assert.Equal(t, r.Begin, runOf(t, f).StartTime)
	assert.Equal(t, []string{"7"}, wandbfiletest.Texts("network.sent", f))
}

func TestTwoStoresDoNotDisturbEachOther(t *testing.T) {
	p := newPlace(t)
	q := newPlace(t, in(p.Directory))
	for second := range 20 {
		for i, s := range []*place{p, q} {
			s.write(host("a"), at(float64(second), value("n", int64(i))))
			if second%7 == 0 {
				require.NoError(t, s.finish("host a"))
			}
		}
	}
	require.NoError(t, p.Close())
	require.NoError(t, q.Close())
	for i, s := range []*place{p, q} {
		for _, text := range wandbfiletest.Texts("n", s.chain("host a")...) {
			assert.Equal(t, strconv.Itoa(i), text)
		}
	}
	assert.Len(t, p.read(), 8)
}

func TestALogThatWasNotEndedStaysAsItIs(t *testing.T) {
	crashed := newPlace(t)
	crashed.write(host("a"), at(0, value("n", 1)))
	crashed.write(host("a"), at(1, value("n", 2)))
	path := crashed.runs["host a"].path
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, []string{"1", "2"}, wandbfiletest.Texts("n", readLog(t, path)))
	require.NoError(t, os.Truncate(path, int64(len(before)-3))) // the machine crashed, too

	p := newPlace(t, in(crashed.Directory), func(o *Options) { o.MaxTotal = 1 << 20 })
	p.write(host("a"), at(2, value("n", 3)))
	require.NoError(t, p.Tend(t.Context()))
	require.NoError(t, p.Close())
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, before[:len(before)-3], after)
	assert.Equal(t, []string{"1"}, wandbfiletest.Texts("n", readLog(t, path)))
	assert.True(t, readLog(t, path).Truncated)
	assert.Len(t, logsOf(t, p.Directory), 2)
}

func TestHistoriesAreBounded(t *testing.T) {
	p := newPlace(t)
	p.write(host("open"), at(0, value("n", 1)))
	for i := range maxHistories {
		p.histories[strconv.Itoa(i)] = &history{}
	}
	p.write(host("a"), at(0, value("n", 1)))
	assert.Len(t, p.histories, 2, "those of open runs are kept")
}

func TestFinishOfWhatIsNotOpen(t *testing.T) {
	p := newPlace(t)
	require.NoError(t, p.Finish("host a"))
	require.NoError(t, p.Tend(t.Context()))
	require.NoError(t, p.Close())
	assertMissing(t, p.Directory)
}
