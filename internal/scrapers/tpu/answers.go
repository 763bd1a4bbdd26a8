// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/dist"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/label"
	pb "github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/runtimepb"
)

// gauge is a value with the runtime's own, slice-wide id of what it is of.
type gauge struct {
	id    int64
	value float64
}

// summary are statistics that the runtime made itself.
type summary struct {
	count uint64
	stats dist.Stats
}

// answers are what one runtime told.
type answers struct {
	// endpoint is the place of the runtime among the configured ones.
	endpoint int
	gauges   [deviceMetrics][]gauge
	// counted and summaries are by label, which is empty for flat distributions.
	counted   [distributions]map[string][]dist.Distribution
	summaries [distributions]map[string][]summary
	queues    map[string]int64
}

func newAnswers(endpoint int) *answers {
	a := &answers{endpoint: endpoint, queues: map[string]int64{}}
	for d := range distributions {
		a.counted[d] = map[string][]dist.Distribution{}
		a.summaries[d] = map[string][]summary{}
	}
	return a
}

// add takes the readings of a metric in.
func (a *answers) add(name string, metrics []*pb.Metric) {
	if name == queueRuntime {
		a.addQueue(metrics)
		return
	}
	for m := range deviceTable {
		if deviceTable[m].runtime == name {
			a.gauges[m] = gaugesOf(metrics)
			return
		}
	}
	for d := range distributionTable {
		if distributionTable[d].runtime == name {
			a.addDistribution(distribution(d), metrics)
			return
		}
	}
}

// gaugesOf reads the values of devices or chips. One without an id could be any's.
func gaugesOf(metrics []*pb.Metric) []gauge {
	var all []gauge
	at := map[int64]int{}
	for _, m := range metrics {
		id, hasID := idOf(m.GetAttribute())
		v, hasValue := valueOf(m)
		if !hasID || !hasValue {
			continue
		}
		if i, twice := at[id]; twice {
			all[i].value = v // the later reading
			continue
		}
		at[id] = len(all)
		all = append(all, gauge{id, v})
	}
	return all
}

func (a *answers) addQueue(metrics []*pb.Metric) {
	for _, m := range metrics {
		v, ok := valueOf(m)
		if !ok || v > maxExact {
			continue
		}
		name := coreLabel.of(m.GetAttribute())
		a.queues[name] = min(a.queues[name]+int64(v), maxExact)
	}
}

// maxExact is the largest whole number up to which a float64 has all of them.
const maxExact = 1 << 53

func (a *answers) addDistribution(d distribution, metrics []*pb.Metric) {
	for _, m := range metrics {
		name := distributionTable[d].label.of(m.GetAttribute())
		switch measure := m.GetMeasure().(type) {
		case *pb.Metric_Distribution:
			a.counted[d][name] = append(a.counted[d][name], distributionOf(measure.Distribution, m.GetStartTimestamp()))
		case *pb.Metric_Summary:
			a.summaries[d][name] = append(a.summaries[d][name], summaryOf(measure.Summary))
		}
	}
}

// valueOf reads a single value, whatever its type is: types differ between versions of
// the runtime. None of those that are read can be below 0.
func valueOf(m *pb.Metric) (float64, bool) {
	var v float64
	switch measure := m.GetMeasure().(type) {
	case *pb.Metric_Gauge:
		switch g := measure.Gauge.GetValue().(type) {
		case *pb.Gauge_AsDouble:
			v = g.AsDouble
		case *pb.Gauge_AsInt:
			v = float64(g.AsInt)
		case *pb.Gauge_AsBool:
			if g.AsBool {
				v = 1
			}
		case *pb.Gauge_AsString:
			parsed, err := strconv.ParseFloat(strings.TrimSpace(g.AsString), 64)
			if err != nil {
				return 0, false
			}
			v = parsed
		default:
			return 0, false
		}
	case *pb.Metric_Counter:
		switch c := measure.Counter.GetValue().(type) {
		case *pb.Counter_AsDouble:
			v = c.AsDouble
		case *pb.Counter_AsInt:
			v = float64(c.AsInt)
		default:
			return 0, false
		}
	default:
		return 0, false
	}
	return v, v >= 0 && isFinite(v)
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// idOf reads the number of a device or chip: the first attribute that is one. The key
// differs and tells nothing.
func idOf(a *pb.Attribute) (int64, bool) {
	for _, one := range listOf(a) {
		id, err := strconv.ParseInt(strings.TrimSpace(textOf(one.GetValue())), 10, 64)
		if err == nil && id >= 0 {
			return id, true
		}
	}
	return 0, false
}

// listOf returns the attributes of a reading, which are a list in the value of one or
// that one alone.
func listOf(a *pb.Attribute) []*pb.Attribute {
	if a.GetValue() == nil {
		return nil
	}
	if list, ok := a.GetValue().GetAttr().(*pb.AttrValue_KvlistAttr); ok {
		return list.KvlistAttr.GetAttributes()
	}
	return []*pb.Attribute{a}
}

// textOf returns a single value as text.
func textOf(v *pb.AttrValue) string {
	switch v := v.GetAttr().(type) {
	case *pb.AttrValue_StringAttr:
		return v.StringAttr
	case *pb.AttrValue_IntAttr:
		return strconv.FormatInt(v.IntAttr, 10)
	case *pb.AttrValue_BoolAttr:
		return strconv.FormatBool(v.BoolAttr)
	case *pb.AttrValue_DoubleAttr:
		return strconv.FormatFloat(v.DoubleAttr, 'f', -1, 64) // a size of 2097152 has no exponent
	case *pb.AttrValue_BytesAttr:
		return string(v.BytesAttr)
	}
	return ""
}

// labelRule says how the label of a reading is made of its attributes.
type labelRule uint8

const (
	// noLabel is that of flat distributions.
	noLabel labelRule = iota
	// bufferLabel is the size of the buffer.
	bufferLabel
	// collectiveLabel is SIZE-OPERATION.
	collectiveLabel
	// coreLabel is TYPE-NUMBER of a core.
	coreLabel
)

// of returns the label, fit for a tag. Where the attributes that make it are missing,
// the first one does.
func (r labelRule) of(a *pb.Attribute) string {
	if r == noLabel {
		return ""
	}
	list := listOf(a)
	if len(list) == 0 {
		return label.Unknown
	}
	if text := r.text(list); text != "" {
		return label.Sanitize(text)
	}
	return label.Sanitize(textOf(list[0].GetValue()))
}

// text is empty where the attributes that make the label are missing.
func (r labelRule) text(list []*pb.Attribute) string {
	switch r {
	case bufferLabel:
		return find(list, "buffer_size")
	case collectiveLabel:
		return joined(find(list, "input_size"), find(list, "collective_type"))
	case coreLabel:
		ordinal, core := find(list, "device_ordinal"), find(list, "core_type")
		if ordinal == "" {
			return ""
		}
		if core == "" {
			core = "device"
		}
		return joined(core, ordinal)
	}
	return ""
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "-" + b
}

// find returns the value of a key, which may have dashes in place of underscores.
func find(list []*pb.Attribute, key string) string {
	for _, a := range list {
		if strings.EqualFold(strings.ReplaceAll(a.GetKey(), "-", "_"), key) {
			return strings.TrimSpace(textOf(a.GetValue()))
		}
	}
	return ""
}

func distributionOf(d *pb.Distribution, start *timestamppb.Timestamp) dist.Distribution {
	all := dist.Distribution{
		Count: d.GetCount(), Mean: d.GetMean(), Min: finiteOr0(d.GetMin()), Max: finiteOr0(d.GetMax()),
		Counts: d.GetBucketCounts(), Start: timeOf(start),
	}
	switch o := d.GetBucketOptions().GetOptions().(type) {
	case *pb.Distribution_BucketOptions_ExponentialBuckets:
		all.Buckets = dist.Buckets{
			Kind: dist.Exponential, Finite: int(o.ExponentialBuckets.GetNumFiniteBuckets()),
			Growth: o.ExponentialBuckets.GetGrowthFactor(), Scale: o.ExponentialBuckets.GetScale(),
		}
	case *pb.Distribution_BucketOptions_LinearBuckets:
		all.Buckets = dist.Buckets{
			Kind: dist.Linear, Finite: int(o.LinearBuckets.GetNumFiniteBuckets()),
			Width: o.LinearBuckets.GetWidth(), Offset: o.LinearBuckets.GetOffset(),
		}
	case *pb.Distribution_BucketOptions_ExplicitBuckets:
		all.Buckets = dist.Buckets{Kind: dist.Explicit, Explicit: o.ExplicitBuckets.GetBounds()}
	}
	return all
}

func finiteOr0(v float64) float64 {
	if isFinite(v) {
		return v
	}
	return 0
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil || t.CheckValid() != nil || (t.GetSeconds() == 0 && t.GetNanos() == 0) {
		return time.Time{}
	}
	return t.AsTime()
}

func summaryOf(s *pb.Summary) summary {
	all := summary{count: s.GetSampleCount()}
	if all.count == 0 {
		return all
	}
	all.stats.Mean = dist.Finite(s.GetSampleSum() / float64(all.count))
	for _, q := range s.GetQuantile() {
		v := dist.Finite(q.GetValue())
		switch q.GetQuantile() {
		case 0.5:
			all.stats.P50 = v
		case 0.9:
			all.stats.P90 = v
		case 0.95:
			all.stats.P95 = v
		case 0.99:
			all.stats.P99 = v
		case 0.999:
			all.stats.P999 = v
		}
	}
	return all
}

// largest returns the statistics that most was counted for: those of several runtimes
// cannot be added up.
func largest(all []summary) dist.Stats {
	var best summary
	for _, s := range all {
		if s.count > best.count {
			best = s
		}
	}
	return best.stats
}
