// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/chips"
	pb "github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/runtimepb"
)

// twoByTwo is a machine with two chips of two devices each.
var twoByTwo = chips.Found{Generation: chips.Generation{Name: "v3", DevicesPerChip: 2, DutyPerChip: true}, Chips: 2}

// requireSane wants what holds for all figures.
func requireSane(t *testing.T, f *figures) {
	t.Helper()
	for m := range f.devices {
		for i, v := range f.devices[m] {
			require.GreaterOrEqual(t, i, 0)
			require.True(t, isFinite(v.value) && v.value >= 0)
		}
	}
	for d := range f.stats {
		for name, s := range f.stats[d] {
			require.Equal(t, distribution(d).isFlat(), name == "")
			for _, v := range []optional.Of[float64]{s.Mean, s.P50, s.P90, s.P95, s.P99, s.P999} {
				require.False(t, v.Known && (math.IsNaN(v.Value) || math.IsInf(v.Value, 0)))
			}
		}
	}
	for name, size := range f.queues {
		require.NotEmpty(t, name)
		require.GreaterOrEqual(t, size, int64(0))
	}
}

// Whatever runtimes answer, the figures are sane.
func FuzzRuntimeAnswers(f *testing.F) {
	add := func(first, second *pb.MetricResponse) {
		a, err := proto.Marshal(first)
		require.NoError(f, err)
		b, err := proto.Marshal(second)
		require.NoError(f, err)
		f.Add(a, b, uint8(0))
	}
	add(perDevice(5, 1, 2), perDevice(7, 8, 9))
	add(perDevice(5, 1, 2), perDevice(5, 1, 2))
	add(response(&pb.Metric{Attribute: listAttr("buffer_size", "8MB+"), Measure: counted(5, 1, 1, 2, 3, 4)}), response(&pb.Metric{Measure: counted(5, 1)}))
	add(response(&pb.Metric{Attribute: listAttr("device_ordinal", "0"), Measure: textGauge("NaN")}), response(&pb.Metric{Attribute: intAttr(math.MaxInt64), Measure: intGauge(-1)}))
	all := wantAll()
	f.Fuzz(func(t *testing.T, first, second []byte, which uint8) {
		names := all.runtimeNames()
		var told []*answers
		for i, content := range [][]byte{first, second} {
			answer := &pb.MetricResponse{}
			if proto.Unmarshal(content, answer) != nil {
				continue
			}
			a := newAnswers(i)
			a.add(names[int(which)%len(names)], answer.GetMetric().GetMetrics())
			a.add(names[(int(which)+1)%len(names)], answer.GetMetric().GetMetrics())
			told = append(told, a)
		}
		for _, found := range []chips.Found{{}, twoByTwo} {
			requireSane(t, new(numbering).figuresOf(told, &found, true))
		}
	})
}

func wantAll() want {
	w := want{queue: true}
	for m := range w.devices {
		w.devices[m] = true
	}
	for d := range w.distributions {
		w.distributions[d] = true
	}
	return w
}

// Whatever the reader says, it is an answer or an error.
func FuzzReaderAnswer(f *testing.F) {
	for _, text := range []string{
		`{"a": {"values": ["1"]}}` + "\n", "", "\n", "{\n", "null\n", `{"tensorcore_util":{"values":["1","NaN"]}}` + "\n",
		`{"ici_link_health":{"values":["tray1.chip3.ici0.int: 0"]},"hlo_queue_size":{"values":["a: 1"]},"tcp_min_rtt":{"values":["1,2,3,4,5"]}}` + "\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		said, err := parseSDK(output)
		if err != nil {
			require.Empty(t, said)
			return
		}
		requireSane(t, sdkFigures(said, &twoByTwo))
	})
}

// Whatever series a plugin has, the figures are sane.
func FuzzPlugin(f *testing.F) {
	f.Add("1111-8", "cloud-tpu", 13.6, "duty_cycle", "1111-9", 5.0)
	f.Add("8", "", -1.0, "tensorcore_utilization_node", "-", 0.0)
	f.Add("1-99999999999999999999", "cloud-tpu", 1.0, "memory_total_node_node", "1-1024", math.Inf(1))
	f.Fuzz(func(t *testing.T, id, maker string, value float64, name, otherID string, other float64) {
		sample := func(id string, v float64) exposition.Sample {
			return exposition.Sample{Labels: exposition.Labels{{Name: "accelerator_id", Value: id}, {Name: "make", Value: maker}}, Value: v}
		}
		requireSane(t, pluginFigures([]exposition.Family{
			{Name: name, Samples: []exposition.Sample{sample(id, value), sample(otherID, other)}},
			{Name: name + nodeSuffix, Samples: []exposition.Sample{sample(otherID, value)}},
		}))
	})
}
