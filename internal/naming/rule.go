// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

const (
	// nodeKey is the attribute with the machine that a GPU of DCGM is in.
	nodeKey = "node"
	// W&B's source of DCGM's figures calls the used memory otherwise than NVML's.
	allocatedMetric, usedMetric = "gpu.memoryAllocatedBytes", "gpu.memoryUsed"
)

// rule is what a style makes of one metric, but for label suffixes.
type rule struct {
	// drop: the metric has no tag.
	drop bool
	// name is the new name, if it is the same for all points.
	name string
	// tag is the template otherwise.
	tag []segment
	// bare is the name of points that lack all placeholders, where the tag
	// without them is another metric's.
	bare string
	// numbered: a single value without its number has no tag.
	numbered bool
}

// tableRules has the rules of the table's metrics in the style [Tag] or [SDK].
func tableRules(style Style) map[string]*rule {
	rules := make(map[string]*rule, len(table))
	for i := range table {
		rules[table[i].metric] = tableRule(style, &table[i])
	}
	return rules
}

func tableRule(style Style, r *row) *rule {
	if r.tag == "" {
		return &rule{drop: true}
	}
	text := r.tag
	if style == SDK && r.sdk != "" {
		text = r.sdk
	}
	segs := compile(text)
	if len(segs) == 1 && segs[0].key == "" {
		return &rule{name: text}
	}
	bare, _ := appendTag(nil, segs, pcommon.NewMap())
	if _, taken := plainTags()[string(bare)]; taken {
		return &rule{tag: segs, bare: r.metric}
	}
	return &rule{tag: segs}
}

// dynamicRule is the rule of a metric that the table lacks; ours says that it is
// of a kind that has such metrics, others keep their name.
func dynamicRule(style Style, metric string) (r *rule, ours bool) {
	if strings.HasPrefix(metric, openMetricsPrefix) {
		return &rule{tag: []segment{{pre: metric}, {key: indexKey}}, numbered: true}, true
	}
	if part, ok := strings.CutPrefix(metric, corePartPrefix); ok {
		return &rule{tag: corePart(part)}, true
	}
	if part, ok := strings.CutPrefix(metric, hostPartPrefix); ok {
		if style == SDK {
			return &rule{name: sdkHostPartPrefix + part}, true
		}
		return &rule{name: metric}, true
	}
	if strings.HasPrefix(metric, migPrefix) {
		return &rule{drop: true}, true
	}
	return &rule{name: metric}, false
}

// render appends the tag of a point with these attributes.
func (r *rule) render(buf []byte, attrs pcommon.Map) []byte {
	if r.tag == nil {
		return append(buf, r.name...)
	}
	start := len(buf)
	buf, whole := appendTag(buf, r.tag, attrs)
	if !whole && r.bare != "" {
		return append(buf[:start], r.bare...)
	}
	return buf
}

// hasNumber tells whether the point of an endpoint has the number of its label set.
func hasNumber(attrs pcommon.Map) bool {
	v, ok := attrs.Get(indexKey)
	return ok && (v.Type() == pcommon.ValueTypeInt || v.AsString() != "")
}

// dcgmName is the metric whose tag W&B gives to DCGM's figure of that name.
func dcgmName(metric string) string {
	if metric == allocatedMetric {
		return usedMetric
	}
	return metric
}

// appendNode appends the machine of a GPU as W&B does.
func appendNode(buf []byte, attrs pcommon.Map) []byte {
	mark := len(buf)
	buf = append(buf, LabelMark...)
	value := len(buf)
	if buf = appendAttr(buf, attrs, nodeKey); len(buf) == value {
		return buf[:mark]
	}
	return buf
}
