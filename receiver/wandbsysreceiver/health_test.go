// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsysreceiver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadatatest"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// familyHealthPoints is what the health metrics say of one family; -1: no point.
type familyHealthPoints struct {
	receiver, family string // receiver: wandbsys when empty
	state            state
	reason           string
	success          int64
	duration, age    time.Duration
}

// none of a value.
const none = -1

func (p familyHealthPoints) attrs(more ...attribute.KeyValue) attribute.Set {
	id := p.receiver
	if id == "" {
		id = "wandbsys"
	}
	return attribute.NewSet(append(more, attribute.String("receiver", id), attribute.String("family", p.family))...)
}

// assertHealth compares all four metrics with what is expected of all families.
func (r *rig) assertHealth(want ...familyHealthPoints) {
	r.t.Helper()
	var states, success []metricdata.DataPoint[int64]
	var durations, ages []metricdata.DataPoint[float64]
	for _, p := range want {
		states = append(states, metricdata.DataPoint[int64]{Value: 1, Attributes: p.attrs(
			attribute.String("state", string(p.state)), attribute.String("reason", p.reason))})
		if p.success != none {
			success = append(success, metricdata.DataPoint[int64]{Value: p.success, Attributes: p.attrs()})
		}
		if p.duration != none {
			durations = append(durations, metricdata.DataPoint[float64]{Value: p.duration.Seconds(), Attributes: p.attrs()})
		}
		if p.age != none {
			ages = append(ages, metricdata.DataPoint[float64]{Value: p.age.Seconds(), Attributes: p.attrs()})
		}
	}
	times := metricdatatest.IgnoreTimestamp()
	metadatatest.AssertEqualWandbsysFamilyState(r.t, r.telemetry, states, times)
	if len(success) > 0 {
		metadatatest.AssertEqualWandbsysFamilyScrapeSuccess(r.t, r.telemetry, success, times)
	} else {
		r.assertNoMetric("otelcol_wandbsys_family_scrape_success")
	}
	if len(durations) > 0 {
		metadatatest.AssertEqualWandbsysFamilyScrapeDuration(r.t, r.telemetry, durations, times)
	} else {
		r.assertNoMetric("otelcol_wandbsys_family_scrape_duration")
	}
	if len(ages) > 0 {
		metadatatest.AssertEqualWandbsysFamilyLastGoodAge(r.t, r.telemetry, ages, times)
	} else {
		r.assertNoMetric("otelcol_wandbsys_family_last_good_age")
	}
}

func (r *rig) assertNoMetric(name string) {
	r.t.Helper()
	_, err := r.telemetry.GetMetric(name)
	require.Error(r.t, err, name)
}

func TestHealthMetricsOfEachState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = time.Millisecond // what rig.after adds
		f := &fakeFamily{name: "f", onScrape: func(ctx context.Context, round int) (pmetric.Metrics, error) {
			time.Sleep(time.Second)
			return script(absent, good, partly("one"), partly("two"), fails("tool", "three"), good, gone)(ctx, round)
		}}
		off := &fakeFamily{name: "off"}
		offPoints := familyHealthPoints{family: "off", state: stateOff, reason: "not listed under scrapers", success: none, duration: none, age: none}
		r := start(t, nil, []*fakeFamily{f, off}, func(c *Config) { c.DetectionInterval = time.Second }, list(f, 1))
		for _, want := range []struct {
			after time.Duration
			familyHealthPoints
		}{
			{0, familyHealthPoints{state: stateStarting, success: none, duration: none, age: none}},
			{time.Second, familyHealthPoints{state: stateAbsent, reason: "no driver", success: none, duration: time.Second, age: none}},
			{interval, familyHealthPoints{state: stateDetected, success: 1, duration: time.Second, age: 3 * step}},
			{interval, familyHealthPoints{state: stateDetected, reason: "tool: one", success: 0, duration: time.Second, age: 4 * step}},
			// Another text is no other reason.
			{interval, familyHealthPoints{state: stateDetected, reason: "tool: one", success: 0, duration: time.Second, age: 5 * step}},
			// The age goes on from the last round that gave data.
			{interval, familyHealthPoints{state: stateLost, reason: "tool: three", success: 0, duration: time.Second, age: interval + 6*step}},
			{interval, familyHealthPoints{state: stateDetected, success: 1, duration: time.Second, age: 7 * step}},
			{interval, familyHealthPoints{state: stateDetected, success: 1, duration: time.Second, age: 8 * step}},
		} {
			r.after(want.after)
			want.family = "f"
			r.assertHealth(want.familyHealthPoints, offPoints)
		}
		r.stop()
		r.assertNoMetric("otelcol_wandbsys_family_state")
	})
}

// troubleError is an error that knows its cause.
type troubleError struct{ cause, text string }

func (e troubleError) Error() string { return e.text }

func (e troubleError) Cause() string { return e.cause }

// Another cause has another cure: it is told although the source failed before.
// Another text is not.
func TestAnotherCauseIsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trouble := func(cause, text string) func(context.Context) (pmetric.Metrics, error) {
			return func(context.Context) (pmetric.Metrics, error) {
				return pmetric.NewMetrics(), &scrapers.SourceError{Source: "driver", Err: troubleError{cause, text}}
			}
		}
		f := &fakeFamily{name: "f", onScrape: script(trouble("9", "not loaded"), trouble("9", "not loaded for 10s"), trouble("18", "restart me"), good)}
		r := start(t, nil, one(f))
		health := func(reason string) {
			t.Helper()
			r.assertHealth(familyHealthPoints{family: "f", state: stateLost, reason: reason, duration: 0, age: none})
		}
		r.after(0)
		health("driver: not loaded")
		r.after(interval)
		health("driver: not loaded")
		r.after(interval)
		health("driver: restart me")
		r.after(interval)
		assert.Equal(t, 2, r.logs.FilterMessage(failed).Len())
		assert.Equal(t, 1, r.logs.FilterMessage(again).Len())
		r.stop()
	})
}

// A source that does not answer has one trouble, whoever gives up first.
func TestWhoGivesUpFirstIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trouble := func(err error) func(context.Context) (pmetric.Metrics, error) {
			return func(context.Context) (pmetric.Metrics, error) {
				return pmetric.NewMetrics(), &scrapers.SourceError{Source: "driver", Err: err}
			}
		}
		f := &fakeFamily{name: "f", onScrape: script(
			trouble(troubleError{"timeout", "no answer in time"}), trouble(fmt.Errorf("gave up: %w", context.DeadlineExceeded)),
			trouble(guard.ErrHung), trouble(troubleError{"timeout", "no answer in time"}), good,
		)}
		r := start(t, nil, one(f))
		r.after(4 * interval)
		assert.Equal(t, 1, r.logs.FilterMessage(failed).Len())
		assert.Equal(t, 1, r.logs.FilterMessage(again).Len())
		r.stop()
	})
}

func TestHealthMetricsOfAHangingFamily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		r := start(t, nil, one(&fakeFamily{name: "f", onScrape: script(hang(release))}))
		r.after(10 * time.Second)
		const reason = "scrape: gave up after 10s: context deadline exceeded"
		r.assertHealth(familyHealthPoints{family: "f", state: stateLost, reason: reason, duration: 10 * time.Second, age: none})
		r.after(interval)
		r.assertHealth(familyHealthPoints{family: "f", state: stateLost, reason: reason, duration: 0, age: none})
		r.stop()
	})
}

func TestHealthMetricsOfTwoReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, one(&fakeFamily{name: "f"}))
		set := metadatatest.NewSettings(r.telemetry)
		set.ID = component.NewIDWithName(metadata.Type, "second")
		second, err := newReceiver(context.Background(), set, newDefaultConfig([]scrapers.Factory{(&fakeFamily{name: "f", onScrape: script(absent)}).factory()}), r.sink)
		require.NoError(t, err)
		require.NoError(t, second.Start(t.Context(), r.host))
		r.after(maxSpread)
		own := familyHealthPoints{family: "f", state: stateDetected, success: 1, age: maxSpread + time.Millisecond}
		r.assertHealth(own, familyHealthPoints{receiver: "wandbsys/second", family: "f", state: stateAbsent, reason: "no driver", success: none, age: none})
		require.NoError(t, second.Shutdown(t.Context()))
		r.assertHealth(own) // the other's callbacks are gone, this one's are not
		r.stop()
	})
}

func TestAReasonIsOneShortLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("ä", maxReason) + "\nand more"
		r := start(t, nil, one(&fakeFamily{name: "f", onScrape: script(fails("t", text))}))
		// "t: " and then as many whole letters as fit.
		want := "t: " + strings.Repeat("ä", (maxReason-3)/2) + "..."
		r.assertHealth(familyHealthPoints{family: "f", state: stateLost, reason: want, age: none})
		r.stop()
	})
}

// TestStatus tells what is reported. That all is well at the start is reported
// by the service itself, unless the receiver was faster with something else.
func TestStatus(t *testing.T) {
	type rounds = []func(context.Context) (pmetric.Metrics, error)
	const problem = "StatusRecoverableError: "
	for name, tt := range map[string]struct {
		a, b rounds
		want []string
	}{
		"nothing while all is well":                    {a: rounds{good, good}, b: rounds{good, good}},
		"nothing for absent hardware and what is gone": {a: rounds{absent, absent}, b: rounds{good, gone}},
		"a fault and its end": {
			a: rounds{good, partly("broke"), partly("broke more"), good, good}, b: rounds{good},
			want: []string{problem + "a: tool: broke", "StatusOK"},
		},
		"from the first scrape on": {
			a: rounds{fails("tool", "broke"), good}, b: rounds{good},
			want: []string{problem + "a: tool: broke", "StatusOK"},
		},
		"the worst of all families": {
			a:    rounds{good, partly("slow"), partly("slow"), partly("slow"), good},
			b:    rounds{good, good, fails("card", "fell off"), good, good},
			want: []string{problem + "a: tool: slow", problem + "b: card: fell off", problem + "a: tool: slow", "StatusOK"},
		},
		"well only when all are": {
			a:    rounds{good, fails("tool", "broke"), fails("tool", "broke"), good},
			b:    rounds{good, good, fails("card", "fell off"), good},
			want: []string{problem + "a: tool: broke", problem + "b: card: fell off", "StatusOK"},
		},
		"hardware that went away is no longer a fault": {
			a: rounds{fails("tool", "broke"), absent}, b: rounds{good},
			want: []string{problem + "a: tool: broke", "StatusOK"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := &fakeFamily{name: "a", onScrape: script(tt.a...)}, &fakeFamily{name: "b"}
				b.onScrape = func(ctx context.Context, round int) (pmetric.Metrics, error) {
					time.Sleep(time.Second) // after a
					return script(tt.b...)(ctx, round)
				}
				r := start(t, nil, []*fakeFamily{a, b}, func(c *Config) { c.DetectionInterval = time.Second })
				r.after(5*interval + 2*time.Second)
				assert.Equal(t, tt.want, r.host.seen())
				r.stop()
				assert.Equal(t, tt.want, r.host.seen(), "none after Shutdown")
			})
		})
	}
}

func TestNoStatusWhileShuttingDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fakeFamily{name: "f", onScrape: func(context.Context, int) (pmetric.Metrics, error) {
			<-release
			return pmetric.NewMetrics(), &scrapers.SourceError{Source: "tool", Err: errors.New("interrupted")}
		}}
		r := start(t, nil, one(f))
		go func() {
			time.Sleep(settleTime / 2)
			close(release)
		}()
		r.stop()
		synctest.Wait()
		assert.Empty(t, r.host.seen())
		assert.Empty(t, r.lines("f"))
		assert.Equal(t, 1, f.count("stop"), "the call came back in time")
	})
}

// A scrape that ends in the instant of the shutdown must not report either.
func TestNoStatusAfterStop(t *testing.T) {
	host := &statusHost{}
	h := newHealth("wandbsys")
	f := h.add("f")
	h.host = host
	f.record(0, &scrapers.SourceError{Source: "tool", Err: errors.New("broke")}, 0)
	h.stop()
	f.record(1, nil, 0)
	assert.Equal(t, []string{"StatusRecoverableError: f: tool: broke"}, host.seen())
}

func TestAHostThatTakesNoStatus(t *testing.T) {
	h := newHealth("wandbsys")
	f := h.add("f")
	c := f.record(0, errors.New("broke"), 0)
	assert.Equal(t, stateLost, c.state)
}
