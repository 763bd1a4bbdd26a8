// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"maps"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// nastyLabels are values of the setting label; some are the ends of tags.
var nastyLabels = []string{
	"", "rank-3", "node-1.a/b", "a/l:b", "/l:", ".", "0", "l:", "x.in", "b.usageGB", "x.usageGB", "0.temp", "p50Us", "3/l:4",
}

// nastyNodes are values of the attribute node; nil is none.
var nastyNodes = []any{nil, "", "node-b", "node-a.b/c", "a/l:b", "x.usageGB", int64(7)}

// nastyValues are values of placeholders; nil is none.
var nastyValues = map[kind][]any{
	text: {
		nil, "", "/", "/mnt/data.v2", "cciss/c0d0", "/a b", "C:", "device", "in", "in/l:x", "in/l:", "out/l:b.in", "/mnt/l:x", "/l:",
		"/a.usageGB/l:b", "usageGB/l:x", "usagePercent", ".", "..", "\xff", "{path}", true,
	},
	number: {nil, "", int64(0), int64(31), int64(math.MaxInt64), int64(-1), "7", "007", "x", "0.temp/l:x", "a.b/c", 1.5},
	word:   {nil, "", "8mb_plus_all_reduce", "p50", "0", "a.b/c", "x/l:y", "A b"},
	stat:   {nil, "", "mean", "p999", "p98", "p50Us/l:x", "0"},
}

// styled names single points in all styles, and reads those names back.
type styled struct {
	keys *Keys
	tag  *Expander
	sdk  map[string]*Expander // by label
}

func newStyled() *styled {
	return &styled{keys: NewKeys(), tag: New(Tag, ""), sdk: map[string]*Expander{}}
}

// single is a metric with one point.
type single struct {
	metric string
	attrs  attrs
	label  string
	dcgm   bool
}

func (s *single) payload() pmetric.Metrics {
	md, ms := newScope()
	if s.dcgm {
		md.ResourceMetrics().At(0).ScopeMetrics().At(0).Scope().Attributes().PutStr(ScopeSource, SourceDCGM)
	}
	put(ms, s.metric, 1, s.attrs)
	return md
}

// as gives the point in each style; nothing in those where it has no name.
func (st *styled) as(s *single) map[Style]pmetric.Metrics {
	sdk, ok := st.sdk[s.label]
	if !ok {
		sdk = New(SDK, s.label)
		st.sdk[s.label] = sdk
	}
	all := map[Style]pmetric.Metrics{Template: s.payload(), Tag: s.payload(), SDK: s.payload()}
	st.tag.Expand(all[Tag])
	sdk.Expand(all[SDK])
	maps.DeleteFunc(all, func(_ Style, md pmetric.Metrics) bool { return md.MetricCount() == 0 })
	return all
}

// key gives the key of the only point.
func (st *styled) key(md pmetric.Metrics, label string) (string, bool) {
	sm := md.ResourceMetrics().At(0).ScopeMetrics().At(0)
	m := sm.Metrics().At(0)
	key, ok := st.keys.Metric(sm.Scope(), m.Name())
	if !ok {
		return "", false
	}
	got, ok := key.Append([]byte("before "), m.Gauge().DataPoints().At(0).Attributes(), label)
	return strings.TrimPrefix(string(got), "before "), ok
}

// check requires one key of the point in all styles: its name in the style sdk.
func (st *styled) check(t *testing.T, s *single) {
	t.Helper()
	all := st.as(s)
	want := ""
	if sdk, ok := all[SDK]; ok {
		want = nameOf(sdk)
	}
	for style, md := range all {
		got, ok := st.key(md, s.label)
		if ok != (want != "") || got != want {
			assert.Failf(t, "another key", "%s %q of %#v: want %q, got %q", style, nameOf(md), *s, want, got)
		}
	}
}

func nameOf(md pmetric.Metrics) string {
	return md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Name()
}

// eachAttrs calls f with each combination of nasty values of the placeholders.
func eachAttrs(keys []string, f func(attrs)) {
	if len(keys) == 0 {
		f(attrs{})
		return
	}
	for _, v := range nastyValues[kinds[keys[0]]] {
		eachAttrs(keys[1:], func(a attrs) {
			if v != nil {
				a[keys[0]] = v
			}
			f(a)
		})
	}
}

func TestKeyIsTheNameInSDKStyle(t *testing.T) {
	st := newStyled()
	for _, r := range table {
		labels := nastyLabels
		if r.family == familyGPU { // many, and much alike
			labels = []string{"", "a/l:b", "0.temp"}
		}
		for _, label := range labels {
			eachAttrs(placeholders(r.tag), func(a attrs) {
				a["gpu_vendor"] = "nvidia"
				st.check(t, &single{metric: r.metric, attrs: a, label: label})
			})
		}
	}
}

func TestKeyOfDCGM(t *testing.T) {
	st := newStyled()
	for _, r := range table {
		if r.family != familyGPU && r.metric != "cpu" && r.metric != "disk.usageGB" {
			continue
		}
		for _, label := range []string{"", "a/l:b"} {
			for _, node := range nastyNodes {
				eachAttrs(placeholders(r.tag), func(a attrs) {
					if node != nil {
						a[nodeKey] = node
					}
					st.check(t, &single{metric: r.metric, attrs: a, label: label, dcgm: true})
				})
			}
		}
	}
}

func TestKeyOfDynamicNames(t *testing.T) {
	st := newStyled()
	for _, label := range nastyLabels {
		for _, metric := range []string{"trn.host_total_memory_usage.new", "trn.host_total_memory_usage.a/l:b"} {
			st.check(t, &single{metric: metric, label: label})
		}
		for _, index := range nastyValues[number] {
			a := attrs{"core_index": index}
			if index == nil {
				a = nil
			}
			for _, metric := range []string{"trn.neuroncore_memory_usage.new", "trn.neuroncore_memory_usage.x.y"} {
				st.check(t, &single{metric: metric, attrs: a, label: label})
			}
		}
	}
}

func TestKeyOfEndpoints(t *testing.T) {
	st := newStyled()
	check := func(metric, label string, index, node any) {
		a := attrs{"pod": "p", indexKey: index, nodeKey: node}
		maps.DeleteFunc(a, func(_ string, v any) bool { return v == nil })
		st.check(t, &single{metric: metric, attrs: a, label: label})
		st.check(t, &single{metric: metric, attrs: a, label: label, dcgm: true})
	}
	for _, label := range nastyLabels {
		for _, node := range nastyNodes {
			for _, index := range []any{nil, "", int64(0), int64(12), int64(100_000)} {
				check("openmetrics.dcgm.DCGM_FI_DEV_GPU_TEMP", label, index, node)
				check("openmetrics.svc.vllm:e2e.latency", label, index, node)
				check("openmetrics.ep.http/l:x", label, index, node)
			}
			check("openmetrics.ep.http.7", label, int64(12), node)
			check("openmetrics.ep.http.7/l:x", label, int64(12), node)
		}
	}
}

func TestKeyOfRandomValues(t *testing.T) {
	st := newStyled()
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		label, node := "", ""
		if rnd.IntN(3) > 0 {
			label, node = nasty(rnd), nasty(rnd)
		}
		for _, r := range table {
			a := attrs{nodeKey: node}
			for _, key := range placeholders(r.tag) {
				a[key] = randomValue(rnd, key)
			}
			st.check(t, &single{metric: r.metric, attrs: a, label: label})
			st.check(t, &single{metric: r.metric, attrs: a, label: label, dcgm: true})
		}
	}
}

// TestAmbiguousNames has all names whose key is not that of the metric they were
// made of.
func TestAmbiguousNames(t *testing.T) {
	for name, tt := range map[string]struct {
		metric string
		attrs  attrs
		label  string
		want   string
	}{
		// of TestKeyOfEndpoints
		"a template name with the point's number":          {"openmetrics.ep.http.3", attrs{indexKey: 3}, "", "openmetrics.ep.http.3"},
		"the same and a label":                             {"openmetrics.ep.http.3", attrs{indexKey: 3}, "n", "openmetrics.ep.http.3/l:n"},
		"a template name with the number and a mark":       {"openmetrics.ep.http.3/l:x", attrs{indexKey: 3}, "n", "openmetrics.ep.http.3/l:x"},
		"a template name with any number, for want of one": {"openmetrics.ep.http.3", nil, "", "openmetrics.ep.http.3"},
		// of TestKeyOfDynamicNames
		"a part with a mark, as tag":      {"trn.0.neuroncore_memory_usage.a/l:b", attrs{"core_index": 0}, "n", "trn.0.neuroncore_memory_usage.a/l:b"},
		"a part with a mark, as template": {"trn.neuroncore_memory_usage.a/l:b", attrs{"core_index": 0}, "n", "trn.0.neuroncore_memory_usage.a/l:b/l:n"},
		"the same without its number":     {"trn.neuroncore_memory_usage.a/l:b", nil, "n", "trn.neuroncore_memory_usage.a/l:b"},
		// of TestKeyByNameAlone: the tags with path=/a.usageGB/l:b, path=in/l:x and device=usageGB/l:x
		"a path with the end of its tag":   {"disk./a.usageGB/l:b.usageGB", nil, "n", "disk./a.usageGB/l:b.usageGB"},
		"a path like the end of another":   {"disk.in/l:x.usageGB", nil, "n", "disk.in/l:x.usageGB"},
		"a device like the end of another": {"disk.usageGB/l:x.in", nil, "n", "disk.usageGB/l:x.in"},
	} {
		t.Run(name, func(t *testing.T) {
			s := single{metric: tt.metric, attrs: tt.attrs}
			got, ok := newStyled().key(s.payload(), tt.label)
			assert.True(t, ok)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestKeyByNameAlone(t *testing.T) {
	st := newStyled()
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 40 {
		s := single{}
		if rnd.IntN(3) > 0 {
			s.label = nasty(rnd)
		}
		for _, r := range table {
			s.metric, s.attrs = r.metric, attrs{}
			two := r.tag == ""
			for _, key := range placeholders(r.tag) {
				value := randomValue(rnd, key)
				s.attrs[key] = value
				two = two || kinds[key] == text && (hasTwoReadings(value, r.tag) || strings.HasPrefix(value, "usage"))
			}
			if !two {
				st.checkNamesAlone(t, &s)
			}
		}
		s.metric, s.attrs = "openmetrics.ep.x", attrs{indexKey: rnd.IntN(9)}
		st.checkNamesAlone(t, &s)
		s.metric, s.attrs = "trn.neuroncore_memory_usage.new", attrs{"core_index": rnd.IntN(9)}
		st.checkNamesAlone(t, &s)
	}
}

// checkNamesAlone requires one key of both full names when no attribute is left.
func (st *styled) checkNamesAlone(t *testing.T, s *single) {
	t.Helper()
	all := st.as(s)
	for _, style := range []Style{Tag, SDK} {
		bare := single{metric: nameOf(all[style])}
		got, ok := st.key(bare.payload(), s.label)
		if want := nameOf(all[SDK]); !ok || got != want {
			assert.Failf(t, "another key", "%s %q of %#v: want %q, got %q", style, bare.metric, *s, want, got)
		}
	}
}

func TestKeyOfDCGMByNameAlone(t *testing.T) {
	for name, want := range map[string]string{
		"gpu.0.temp":                             "gpu.0.temp/l:rank-3",
		"gpu.0.memoryAllocatedBytes":             "gpu.0.memoryUsed/l:rank-3",
		"gpu.0.unCorrectedMemoryErrors":          "gpu.0.uncorrectedMemoryErrors/l:rank-3",
		"gpu.0.memoryUsed/l:node-b/l:rank-3":     "gpu.0.memoryUsed/l:node-b/l:rank-3",
		"gpu.0.uncorrectedMemoryErrors/l:rank-3": "gpu.0.uncorrectedMemoryErrors/l:rank-3",
	} {
		s := single{metric: name, dcgm: true}
		got, ok := newStyled().key(s.payload(), "rank-3")
		assert.True(t, ok, name)
		assert.Equal(t, want, got)
	}
}

func TestANameKeepsItsLabel(t *testing.T) {
	for _, label := range []string{"", "other"} { // the resource has lost its label, or got another
		for name, a := range map[string]attrs{
			"cpu/l:rank-3":                        nil,
			"gpu.0.temp/l:rank-3":                 {"gpu_index": 0},
			"gpu.temp/l:rank-3":                   nil,
			"disk./mnt/l:x.usageGB/l:rank-3":      {"path": "/mnt/l:x"},
			"ipu.average board temp/l:rank-3":     nil,
			"trn.host_memory_usage.new/l:rank-3":  nil,
			"openmetrics.ep.x.3/l:rank-3":         {indexKey: 3},
			"tpu.hloExecTiming.odd label/l:rank3": {"label": "odd label"},
		} {
			s := single{metric: name, attrs: a}
			got, ok := newStyled().key(s.payload(), label)
			assert.True(t, ok, name)
			assert.Equal(t, name, got)
		}
	}
}

func TestNamesWithoutKey(t *testing.T) {
	for _, name := range []string{
		"", "wandbsys_family_state", "wandbsys_gpu.temp", "somebody.elses", "system.cpu.utilization", "gpu.mig.memoryAllocated",
		"gpu.mig.new", "gpu.mig.new/l:x", "cpux", "cpu/l:", "gpu.0.nonsense", "system.gpu.0.temp", "/l:", "openmetric.ep.x.3",
	} {
		_, ok := NewKeys().Metric(pcommon.NewInstrumentationScope(), name)
		assert.False(t, ok, name)
	}
	for name, a := range map[string]attrs{
		"openmetrics.ep.x":        {"pod": "p"},
		"openmetrics.ep.x/l:n":    nil,
		"openmetrics.ep.empty":    {indexKey: ""},
		"gpu.x.temp":              {"gpu_index": "y"},
		"gpu.temp.9":              {"gpu_index": 9},
		"tpu.hloExecTiming.p98Us": nil,
	} {
		s := single{metric: name, attrs: a}
		got, ok := newStyled().key(s.payload(), "label")
		assert.False(t, ok, name)
		assert.Empty(t, got)
	}
	buf, ok := Key{}.Append([]byte("as it was"), pcommon.NewMap(), "label")
	assert.False(t, ok)
	assert.Equal(t, "as it was", string(buf))
}

func TestNoKeyBelongsToTwoMetrics(t *testing.T) {
	values := attrs{}
	for _, r := range table {
		for _, key := range placeholders(r.tag) {
			values[key] = "1"
		}
	}
	for name, tt := range map[string]struct {
		attrs attrs
		dcgm  bool
	}{
		"with all attributes": {attrs: values},
		"without any":         {},
		"DCGM's":              {attrs: values, dcgm: true},
	} {
		t.Run(name, func(t *testing.T) {
			st, owner := newStyled(), map[string]string{}
			for _, r := range table {
				s := single{metric: r.metric, attrs: tt.attrs, dcgm: tt.dcgm}
				key, ok := st.key(s.payload(), "n")
				if !ok {
					assert.Empty(t, r.tag, r.metric)
					continue
				}
				if tt.dcgm && r.metric == usedMetric {
					assert.Equal(t, allocatedMetric, owner[key], "one tag for both; DCGM's figures have only the other")
					continue
				}
				assert.Empty(t, owner[key], "%s is the key of %s, too", key, r.metric)
				owner[key] = r.metric
			}
		})
	}
}

func TestKeysRememberALimitedNumberOfNames(t *testing.T) {
	k := NewKeys()
	scope := pcommon.NewInstrumentationScope()
	first, ok := k.Metric(scope, "openmetrics.ep.first")
	require.True(t, ok)
	for i := range 2 * maxNames {
		k.Metric(scope, "openmetrics.ep."+strconv.Itoa(i))
		k.Metric(scope, "unknown."+strconv.Itoa(i))
	}
	assert.LessOrEqual(t, len(k.plain), maxNames)
	assert.Empty(t, k.dcgm)
	s := single{metric: "-", attrs: attrs{indexKey: 1}}
	got, ok := first.Append(nil, s.payload().ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().At(0).Attributes(), "")
	assert.True(t, ok, "a Key outlives what is remembered")
	assert.Equal(t, "openmetrics.ep.first.1", string(got))
}

// keyPayloads has 8 GPUs x 20 metrics in each style, and what DCGM has in sdk style.
func keyPayloads() map[string]pmetric.Metrics {
	all := map[string]pmetric.Metrics{"template": payload(), "tag": payload(), "sdk": payload(), "sdk of DCGM": payload()}
	New(Tag, "").Expand(all["tag"])
	New(SDK, "node-1").Expand(all["sdk"])
	sm := all["sdk of DCGM"].ResourceMetrics().At(0).ScopeMetrics().At(0)
	sm.Scope().Attributes().PutStr(ScopeSource, SourceDCGM)
	for _, m := range sm.Metrics().All() {
		for _, p := range m.Gauge().DataPoints().All() {
			p.Attributes().PutStr(nodeKey, "node-b")
		}
	}
	New(SDK, "node-1").Expand(all["sdk of DCGM"])
	return all
}

// appendAll makes the keys of all points, and tells how many those are.
func appendAll(k *Keys, buf []byte, md pmetric.Metrics) (_ []byte, points int) {
	sm := md.ResourceMetrics().At(0).ScopeMetrics().At(0)
	for i := range sm.Metrics().Len() {
		m := sm.Metrics().At(i)
		key, ok := k.Metric(sm.Scope(), m.Name())
		if !ok {
			continue
		}
		ps := m.Gauge().DataPoints()
		for j := range ps.Len() {
			if buf, ok = key.Append(buf[:0], ps.At(j).Attributes(), "node-1"); ok {
				points++
			}
		}
	}
	return buf, points
}

func TestKeysOfKnownNamesCostNoAllocation(t *testing.T) {
	for name, md := range keyPayloads() {
		k := NewKeys()
		buf, points := appendAll(k, nil, md)
		assert.Equal(t, 160, points, name)
		assert.Zero(t, testing.AllocsPerRun(20, func() { buf, _ = appendAll(k, buf, md) }), name)
	}
}

func BenchmarkKeys(b *testing.B) {
	for name, md := range keyPayloads() {
		b.Run(name+" 8 GPUs x 20", func(b *testing.B) {
			k := NewKeys()
			buf, points := appendAll(k, nil, md)
			b.ReportAllocs()
			for b.Loop() {
				buf, _ = appendAll(k, buf, md)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*points), "ns/point")
		})
	}
}

// FuzzKeys holds the key of any name to little, and that of a point of the table
// to the name in the style sdk.
func FuzzKeys(f *testing.F) {
	for i, seed := range []string{
		"cpu", "gpu.temp", "gpu.0.temp/l:node-b/l:n", "disk./a.usageGB/l:b.usageGB", "disk.in/l:x.usageGB", "disk.usageGB/l:x.in",
		"openmetrics.ep.x.3/l:n", "openmetrics.", "trn.neuroncore_memory_usage.a/l:b", "trn.host_total_memory_usage.", "gpu.mig.new",
		"wandbsys_family_state", "tpu.hloExecTiming.odd label.p98Us", "gpu.0.memoryAllocatedBytes",
	} {
		f.Add(seed, uint(i), int64(0), "/a.usageGB/l:b", "p50", "n", i%2 == 0)
	}
	for i := range table {
		f.Add(table[i].tag, uint(i), int64(3), "in/l:x", "", "node-1.a/b", i%2 == 0)
	}
	st := newStyled()
	f.Fuzz(func(t *testing.T, name string, row uint, index int64, value, other, label string, dcgm bool) {
		r := &table[row%uint(len(table))]
		s := single{metric: r.metric, attrs: attrs{indexKey: index, nodeKey: value}, label: label, dcgm: dcgm}
		values := []string{value, other}
		for i, key := range placeholders(r.tag) {
			s.attrs[key] = values[i]
			if kinds[key] == number {
				s.attrs[key] = index
			}
		}
		clear(st.sdk) // there is no end of labels
		st.check(t, &s)

		s.metric = name
		key, ok := st.key(s.payload(), label)
		assert.Equal(t, ok, key != "")
		again, _ := st.key(s.payload(), label)
		assert.Equal(t, key, again, "of a remembered name")
	})
}
