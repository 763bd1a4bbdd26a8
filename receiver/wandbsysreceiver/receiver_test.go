// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsysreceiver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

const (
	changed = "Family state"
	again   = "Source answers again"
	failed  = "Error scraping metrics"
)

func one(f *fakeFamily) []*fakeFamily { return []*fakeFamily{f} }

func TestDataFlowsUnderItsNames(t *testing.T) {
	for style, want := range map[naming.Style][]string{
		naming.Template: {"gpu.temp"},
		naming.Tag:      {"gpu.0.temp", "gpu.1.temp"},
		naming.SDK:      {"gpu.0.temp/l:a", "gpu.1.temp/l:a"},
	} {
		t.Run(string(style), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeFamily{name: "gpus", onScrape: func(context.Context, int) (pmetric.Metrics, error) {
					return points("gpu.temp", 2), nil
				}}
				r := start(t, nil, one(f), func(c *Config) { c.Naming, c.Label = style, "a" })
				assert.Equal(t, want, r.names())
				r.after(2 * interval)
				assert.Len(t, r.sink.AllMetrics(), 3)
				r.stop()
				assert.Equal(t, []line{{"INFO", changed, "detected"}}, r.lines("gpus"))
				assert.Equal(t, 1, f.count("stop"))
			})
		})
	}
}

// hang blocks, whatever becomes of the context, until it is released.
func hang(release <-chan struct{}) func(context.Context) (pmetric.Metrics, error) {
	return func(context.Context) (pmetric.Metrics, error) {
		<-release
		return points("late", 1), nil
	}
}

func TestAHangingFamilyDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := &fakeFamily{name: "stuck", onScrape: script(hang(release), good)}
		other := &fakeFamily{name: "other"}
		r := start(t, nil, []*fakeFamily{stuck, other})
		r.after(10 * interval)
		assert.Equal(t, 11, other.count("scrape"))
		assert.Equal(t, 1, stuck.scrapesBegun(), "one call is left behind, no second is made")
		assert.Equal(t, []line{
			{"INFO", changed, "lost; scrape: gave up after 10s: context deadline exceeded"},
			{"ERROR", failed, "scrape: gave up after 10s: context deadline exceeded"},
		}, r.lines("stuck"))

		close(release)
		r.after(interval)
		assert.Equal(t, 2, stuck.scrapesBegun())
		assert.Equal(t, 1, stuck.together)
		assert.NotContains(t, r.names(), "late", "what comes after the deadline is no reading of now")
		assert.Contains(t, r.names(), "m")
		assert.Equal(t, []line{{"INFO", changed, "detected"}, {"INFO", again, "scrape"}}, r.lines("stuck")[2:])
		r.stop()
		assert.Equal(t, 1, stuck.count("stop"))
	})
}

func TestShutdownLeavesAHangingCallBehind(t *testing.T) {
	for name, at := range map[string]time.Duration{
		"while it is waited for": time.Second,
		"after it was given up":  interval - time.Second,
		"rounds later":           3 * interval,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				defer close(release)
				stuck := &fakeFamily{name: "stuck", onScrape: script(hang(release))}
				other := &fakeFamily{name: "other"}
				r := start(t, nil, []*fakeFamily{stuck, other})
				r.after(at)
				assert.LessOrEqual(t, r.stop(), settleTime)
				assert.Zero(t, stuck.count("stop"), "a family is not freed under a call of it")
				assert.Equal(t, 1, other.count("stop"))
				lines := r.lines("stuck")
				assert.Equal(t, line{"WARN", "Left a hanging call behind", ""}, lines[len(lines)-1])
			})
		})
	}
}

func TestASourceThatHonoursItsContextHasAShareOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFamily{name: "slow", onScrape: func(ctx context.Context, _ int) (pmetric.Metrics, error) {
			<-ctx.Done()
			return points("fast", 1), &scrapers.SourceError{Source: "slow tool", Err: ctx.Err()}
		}}
		r := start(t, nil, one(f))
		r.after(8 * time.Second)
		assert.Equal(t, []string{"fast"}, r.names(), "what did answer is out before the timeout of 10s")
		r.after(3 * interval)
		assert.Len(t, r.names(), 4)
		assert.Equal(t, []line{
			{"INFO", changed, "detected; slow tool: context deadline exceeded"},
			{"ERROR", failed, "slow tool: context deadline exceeded"},
		}, r.lines("slow"))
		r.stop()
		assert.Equal(t, 1, f.count("stop"))
	})
}

func TestShutdownEndsAScrapeThatHonoursItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFamily{name: "slow", onScrape: func(ctx context.Context, _ int) (pmetric.Metrics, error) {
			<-ctx.Done()
			return pmetric.NewMetrics(), ctx.Err()
		}}
		r := start(t, nil, one(f))
		assert.Zero(t, r.stop())
		assert.Equal(t, []string{"start", "scrape", "stop"}, f.order())
		assert.Empty(t, r.lines("slow"), "a shutdown is no fault of a source")
	})
}

// TestLog tells what is logged for what the rounds bring. The controller logs
// every error that a scrape returns.
func TestLog(t *testing.T) {
	panics := func(context.Context) (pmetric.Metrics, error) { panic("index out of range") }
	join := func(errs ...error) func(context.Context) (pmetric.Metrics, error) {
		return func(context.Context) (pmetric.Metrics, error) { return points("m", 1), errors.Join(errs...) }
	}
	source := func(name string) error { return &scrapers.SourceError{Source: name, Err: errors.New("broke")} }
	for name, tt := range map[string]struct {
		rounds []func(context.Context) (pmetric.Metrics, error)
		want   []line
		points int
	}{
		"a fault is logged when it begins and ends, whatever its text does": {
			rounds: []func(context.Context) (pmetric.Metrics, error){good, partly("one"), partly("two"), partly("three"), good},
			want: []line{
				{"INFO", changed, "detected"},
				{"ERROR", failed, "tool: one"},
				{"INFO", again, "tool"},
			},
			points: 5,
		},
		"a second fault is news, the first is not repeated": {
			rounds: []func(context.Context) (pmetric.Metrics, error){join(source("a")), join(source("a"), source("b")), join(source("b"))},
			want: []line{
				{"INFO", changed, "detected; a: broke"},
				{"ERROR", failed, "a: broke"},
				{"ERROR", failed, "b: broke"},
				{"INFO", again, "a"},
			},
			points: 3,
		},
		"two errors of one source are both told": {
			rounds: []func(context.Context) (pmetric.Metrics, error){join(source("a"), &scrapers.SourceError{Source: "a", Err: errors.New("burnt")}, errors.New("x"), errors.New("y"))},
			want: []line{
				{"INFO", changed, "detected; a: broke"},
				{"ERROR", failed, "a: broke\na: burnt\nx\ny"},
			},
			points: 1,
		},
		"an error of no known kind keeps its text": {
			rounds: []func(context.Context) (pmetric.Metrics, error){join(fmt.Errorf("reading %w after %w", errors.New("x"), errors.New("y")))},
			want: []line{
				{"INFO", changed, "detected; reading x after y"},
				{"ERROR", failed, "reading x after y"},
			},
			points: 1,
		},
		"detected, lost, detected": {
			rounds: []func(context.Context) (pmetric.Metrics, error){good, fails("tool", "gone"), fails("tool", "still gone"), good},
			want: []line{
				{"INFO", changed, "detected"},
				{"INFO", changed, "lost; tool: gone"},
				{"ERROR", failed, "tool: gone"},
				{"INFO", changed, "detected"},
				{"INFO", again, "tool"},
			},
			points: 2,
		},
		"absent, detected, lost, detected": {
			rounds: []func(context.Context) (pmetric.Metrics, error){absent, absent, good, fails("tool", "gone"), good},
			want: []line{
				{"INFO", changed, "absent; no driver; load it"},
				{"INFO", changed, "detected"},
				{"INFO", changed, "lost; tool: gone"},
				{"ERROR", failed, "tool: gone"},
				{"INFO", changed, "detected"},
				{"INFO", again, "tool"},
			},
			points: 2,
		},
		"what went away with its hardware does not answer again": {
			rounds: []func(context.Context) (pmetric.Metrics, error){fails("tool", "gone"), absent},
			want: []line{
				{"INFO", changed, "lost; tool: gone"},
				{"ERROR", failed, "tool: gone"},
				{"INFO", changed, "absent; no driver; load it"},
			},
		},
		"what is gone is logged once and hurts nobody": {
			rounds: []func(context.Context) (pmetric.Metrics, error){good, gone, gone, gone},
			want:   []line{{"INFO", changed, "detected"}, {"WARN", "Target is gone", "process 7"}},
			points: 4,
		},
		"nothing to report is not a fault": {
			rounds: []func(context.Context) (pmetric.Metrics, error){func(context.Context) (pmetric.Metrics, error) { return pmetric.NewMetrics(), nil }},
			want:   []line{{"INFO", changed, "detected"}},
		},
		"the zero value is nothing to report": {
			rounds: []func(context.Context) (pmetric.Metrics, error){func(context.Context) (pmetric.Metrics, error) { return pmetric.Metrics{}, source("a") }},
			want:   []line{{"INFO", changed, "lost; a: broke"}, {"ERROR", failed, "a: broke"}},
		},
		"a panic is a fault like others": {
			rounds: []func(context.Context) (pmetric.Metrics, error){panics, panics, good},
			want: []line{
				{"INFO", changed, "lost; scrape: panic: index out of range"},
				{"ERROR", failed, "scrape: panic: index out of range"},
				{"INFO", changed, "detected"},
				{"INFO", again, "scrape"},
			},
			points: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, nil, one(&fakeFamily{name: "f", onScrape: script(tt.rounds...)}),
					func(c *Config) { c.DetectionInterval = time.Second })
				r.after(time.Duration(len(tt.rounds)-1) * interval)
				r.stop()
				lines := r.lines("f")
				for i := range lines { // without the stack
					if len(lines[i].text) > 200 {
						lines[i].text = lines[i].text[:len("scrape: panic: index out of range")]
					}
				}
				assert.Equal(t, tt.want, lines)
				assert.Len(t, r.names(), tt.points, "data comes out, whatever else failed")
			})
		})
	}
}

func TestAbsentHardwareIsLookedForEveryDetectionInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFamily{name: "f", onScrape: script(absent, absent, good)}
		r := start(t, nil, one(f)) // detection_interval: 5m
		assert.Equal(t, 1, f.count("scrape"))
		r.after(5*time.Minute - interval)
		assert.Equal(t, 1, f.count("scrape"))
		r.after(interval)
		assert.Equal(t, 2, f.count("scrape"))
		r.after(5 * time.Minute)
		assert.Equal(t, 3, f.count("scrape"))
		r.after(2 * interval)
		assert.Equal(t, 5, f.count("scrape"), "what is here is read every interval")
		assert.Equal(t, []line{{"INFO", changed, "absent; no driver; load it"}, {"INFO", changed, "detected"}}, r.lines("f"))
		r.stop()
	})
}

func TestEachFamilyHasOneLineAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listed, off := &fakeFamily{name: "listed"}, &fakeFamily{name: "unlisted"}
		r := start(t, nil, []*fakeFamily{listed, off}, list(listed, 1))
		assert.Equal(t, []line{{"INFO", changed, "detected"}}, r.lines("listed"))
		assert.Equal(t, []line{{"INFO", "Family is off", "not listed under scrapers; add scrapers::unlisted"}}, r.lines("unlisted"))
		r.stop()
		assert.Empty(t, off.order())
	})
}

func TestAFamilyThatCannotStartDoesNotStopTheCollector(t *testing.T) {
	for name, tt := range map[string]struct {
		onStart func(context.Context) error
		want    string
	}{
		"error": {func(context.Context) error { return errors.New("no socket") }, "start: no socket"},
		"panic": {func(context.Context) error { panic("no socket") }, "start: panic: no socket"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broken := &fakeFamily{name: "broken", onStart: tt.onStart, onPrime: func(context.Context) {}}
				other := &fakeFamily{name: "other"}
				r := start(t, nil, []*fakeFamily{broken, other})
				r.after(3 * interval)
				assert.Equal(t, 4, other.count("scrape"))
				assert.Equal(t, []string{"start"}, broken.order())
				lines := r.lines("broken")
				require.Len(t, lines, 2)
				assert.Equal(t, line{"INFO", changed, "lost; " + tt.want}, lines[0])
				assert.Contains(t, lines[1].text, tt.want)
				r.stop()
			})
		})
	}
}

func TestAFamilyThatCannotBeMadeIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := build(t, nil, one(&fakeFamily{name: "f", newErr: errors.New("bad pattern")}))
		require.EqualError(t, err, "f: bad pattern")
	})
}

func TestTheBaselineComesFirstAndOffTheStartPath(t *testing.T) {
	for range 20 { // the race for the slot is a real one
		synctest.Test(t, func(t *testing.T) {
			f := &fakeFamily{name: "f", onPrime: func(context.Context) { time.Sleep(2 * time.Second) }}
			began := time.Now()
			r := start(t, nil, one(f))
			require.Zero(t, time.Since(began))
			r.after(3 * time.Second)
			require.Equal(t, []string{"start", "prime", "scrape"}, f.order())
			require.Len(t, r.names(), 1)
			r.stop()
		})
	}
}

func TestAHangingBaseline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fakeFamily{name: "f", onPrime: func(context.Context) { <-release }}
		r := start(t, nil, one(f))
		r.after(interval)
		assert.Zero(t, f.scrapesBegun())
		close(release)
		r.after(interval)
		assert.Equal(t, []string{"start", "prime", "scrape"}, f.order())
		r.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		r := start(t, nil, one(&fakeFamily{name: "f", onPrime: func(context.Context) { <-release }}))
		assert.LessOrEqual(t, r.stop(), settleTime)
	})
}

func TestAPanicInTheBaselineIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFamily{name: "f", onPrime: func(context.Context) { panic("nil map") }}
		r := start(t, nil, one(f))
		r.stop()
		require.Len(t, r.logs.FilterMessage("Taking the baseline failed").All(), 1)
		assert.Len(t, r.names(), 1)
	})
}

func TestAPanicInShutdownIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFamily{name: "f", onStop: func(context.Context) error { panic("double free") }}
		r := start(t, nil, one(f))
		require.ErrorContains(t, r.receiver.Shutdown(t.Context()), "f: stopping: panic: double free")
	})
}

func TestAShutdownThatHangsIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := &fakeFamily{name: "stuck", onStop: func(context.Context) error { <-release; return nil }}
		other := &fakeFamily{name: "other"}
		r := start(t, nil, []*fakeFamily{stuck, other})
		began := time.Now()
		err := r.receiver.Shutdown(t.Context())
		require.ErrorContains(t, err, "context deadline exceeded")
		assert.LessOrEqual(t, time.Since(began), shutdownTimeout)
		assert.Equal(t, 1, other.count("stop"))
		close(release)
		synctest.Wait()
	})
}

func TestNothingIsForwardedWhereThereIsNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		md    func() pmetric.Metrics
		style naming.Style
	}{
		"no resource":              {pmetric.NewMetrics, naming.Template},
		"no point":                 {func() pmetric.Metrics { return points("m", 0) }, naming.Template},
		"none that has a full tag": {func() pmetric.Metrics { return points("gpu.mig.memoryAllocated", 1) }, naming.Tag},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeFamily{name: "f", onScrape: func(context.Context, int) (pmetric.Metrics, error) { return tt.md(), nil }}
				r := start(t, nil, one(f), func(c *Config) { c.Naming = tt.style })
				r.after(interval)
				assert.Equal(t, 2, f.count("scrape"))
				assert.Empty(t, r.sink.AllMetrics())
				r.stop()
			})
		})
	}
}

func consumeFunc(t *testing.T, fn func(context.Context, pmetric.Metrics) error) consumer.Metrics {
	t.Helper()
	next, err := consumer.NewMetrics(fn)
	require.NoError(t, err)
	return next
}

func TestAConsumerThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFamily{name: "f"}
		r := start(t, consumertest.NewErr(errors.New("queue is full")), one(f))
		r.after(3 * interval)
		assert.Equal(t, 4, f.count("scrape"))
		r.stop()
		assert.Equal(t, []line{{"INFO", changed, "detected"}}, r.lines("f"), "the pipeline's faults are not the family's")
		assert.Empty(t, r.host.seen())
	})
}

func TestAConsumerThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFamily{name: "f"}
		r := start(t, consumeFunc(t, func(ctx context.Context, _ pmetric.Metrics) error {
			<-ctx.Done()
			return ctx.Err()
		}), one(f))
		r.after(interval)
		assert.Equal(t, 2, f.count("scrape"), "it is given up after the timeout")
		assert.Zero(t, r.stop(), "and when the receiver stops")
		assert.Equal(t, 1, f.count("stop"))
	})
}

func TestAConsumerThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := start(t, consumeFunc(t, func(context.Context, pmetric.Metrics) error { <-release; return nil }),
			one(&fakeFamily{name: "f"}))
		began := time.Now()
		require.EqualError(t, r.receiver.Shutdown(context.Background()), "stopping the families: context deadline exceeded")
		assert.Equal(t, shutdownTimeout, time.Since(began))
		close(release)
		time.Sleep(time.Second)
	})
}

func TestTheConsumerHasAFreshDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left time.Duration
		release := make(chan struct{})
		f := &fakeFamily{name: "f", onScrape: func(context.Context, int) (pmetric.Metrics, error) {
			time.Sleep(9 * time.Second) // of 10
			return points("m", 1), nil
		}}
		r := start(t, consumeFunc(t, func(ctx context.Context, _ pmetric.Metrics) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			close(release)
			return ctx.Err()
		}), one(f))
		<-release
		assert.Equal(t, 10*time.Second, left)
		r.stop()
	})
}

func TestSeriesLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFamily{name: "f", onScrape: func(_ context.Context, round int) (pmetric.Metrics, error) {
			if round == 4 {
				return points("m", 3), nil
			}
			return points("m", 5+round), nil
		}}
		r := start(t, nil, one(f), list(f, 3))
		r.after(3 * interval)
		for _, md := range r.sink.AllMetrics() {
			assert.Equal(t, 3, md.DataPointCount())
		}
		r.stop()
		const text = "series limit: 3 series were dropped: raise scrapers::f::max_series (3)"
		assert.Equal(t, []line{
			{"INFO", changed, "detected; " + text},
			{"ERROR", failed, text},
			{"INFO", again, "series limit"},
		}, r.lines("f"))
	})
}

func TestKeepPointsOfEveryType(t *testing.T) {
	md := pmetric.NewMetrics()
	for range 2 {
		ms := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
		for i, points := range []func(pmetric.Metric){
			func(m pmetric.Metric) { m.SetEmptyGauge().DataPoints().EnsureCapacity(0) },
			func(m pmetric.Metric) { m.SetEmptyGauge().DataPoints().AppendEmpty() },
			func(m pmetric.Metric) { m.SetEmptySum().DataPoints().AppendEmpty() },
			func(m pmetric.Metric) { m.SetEmptyHistogram().DataPoints().AppendEmpty() },
			func(m pmetric.Metric) { m.SetEmptyExponentialHistogram().DataPoints().AppendEmpty() },
			func(m pmetric.Metric) { m.SetEmptySummary().DataPoints().AppendEmpty() },
		} {
			m := ms.AppendEmpty()
			m.SetName(strconv.Itoa(i))
			points(m)
		}
	}
	for n := 10; n >= 0; n-- {
		keepPoints(md, n)
		require.Equal(t, n, md.DataPointCount())
	}
	assert.Zero(t, md.ResourceMetrics().Len(), "nothing empty is left")
}

func TestShutdownBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFamily{name: "f", onPrime: func(context.Context) {}}
		r, err := build(t, nil, one(f))
		require.NoError(t, err)
		assert.Zero(t, r.stop())
		assert.Zero(t, f.scrapesBegun())
	})
}

func TestShutdownTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFamily{name: "f", onStop: func(context.Context) error { return errors.New("busy") }}
		r := start(t, nil, one(f))
		for range 2 {
			require.EqualError(t, r.receiver.Shutdown(t.Context()), "f: stopping: busy")
		}
		assert.Equal(t, 1, f.count("stop"))
	})
}

func TestOneInstanceAfterTheOther(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, nil, one(&fakeFamily{name: "f"}))
			r.after(interval)
			assert.Len(t, r.names(), 2)
			r.stop()
			r.after(5 * interval)
			assert.Len(t, r.names(), 2)
		})
	}
}

func TestFactory(t *testing.T) {
	set := receivertest.NewNopSettings(metadata.Type)
	r, err := NewFactory().CreateMetrics(t.Context(), set, NewFactory().CreateDefaultConfig(), consumertest.NewNop())
	require.NoError(t, err)
	require.NoError(t, r.Shutdown(t.Context()))

	cfg := createDefaultConfig().(*Config)
	cfg.Workloads.Pid = "me"
	_, err = NewFactory().CreateMetrics(t.Context(), set, cfg, consumertest.NewNop())
	require.ErrorContains(t, err, "workloads::pid: me: must be a process id")
}

// What one family measures the others hear of, but not those of another receiver.
func TestFamiliesShareWhichGPUsAreMeasured(t *testing.T) {
	a, b, other := &fakeFamily{name: "a"}, &fakeFamily{name: "b"}, &fakeFamily{name: "a"}
	for _, families := range [][]*fakeFamily{{a, b}, {other}} {
		r, err := build(t, nil, families)
		require.NoError(t, err)
		require.NoError(t, r.receiver.Shutdown(t.Context()))
	}
	a.settings.GPUs.Set("a", []string{"GPU-0"})
	assert.True(t, b.settings.GPUs.Has("GPU-0"))
	assert.NotNil(t, other.settings.GPUs)
	assert.False(t, other.settings.GPUs.Has("GPU-0"))
}

func TestSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for _, host := range []string{"node-1", "node-2", "node-3"} {
		for _, family := range []string{"amd", "host", "nvidia"} {
			d := spread(host, family, time.Minute)
			assert.Equal(t, d, spread(host, family, time.Minute), "the same every time")
			assert.GreaterOrEqual(t, d, time.Duration(0))
			assert.Less(t, d, maxSpread)
			assert.Less(t, spread(host, family, 20*time.Millisecond), 20*time.Millisecond)
			seen[d] = true
		}
	}
	assert.Len(t, seen, 9, "machines and families differ")
	assert.Zero(t, spread("node-1", "host", time.Microsecond))
}

func TestFirstScrape(t *testing.T) {
	for name, tt := range map[string]struct {
		set  map[string]bool // where initial_delay is given, as 1s
		want time.Duration
	}{
		"is spread by default":                  {nil, spread("node", "f", interval)},
		"keeps the receiver's explicit delay":   {map[string]bool{"": true}, time.Second},
		"keeps the family's own explicit delay": {map[string]bool{"f": true}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeFamily{name: "f"}
				r := start(t, nil, one(f), func(c *Config) {
					c.delaySet, c.Timing.InitialDelay = tt.set, time.Second
				}, list(f, 1))
				time.Sleep(tt.want - time.Millisecond)
				synctest.Wait()
				assert.Zero(t, f.scrapesBegun())
				r.after(time.Millisecond)
				assert.Equal(t, 1, f.scrapesBegun())
				assert.Equal(t, time.Second, r.cfg.Scrapers["f"].Common().Timing.InitialDelay, "the configuration stays as it was")
				r.stop()
			})
		})
	}
}
