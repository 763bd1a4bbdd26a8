// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

// Attributes of resources that say what a resource is.
const (
	attrHost     = "host.name"
	attrInstance = "service.instance.id"
	attrKind     = "wandbsys.workload.kind"
	attrLabel    = "wandb.label"
	attrServer   = "server.address"
)

// subject says whose run the points of a resource go into.
type subject struct {
	key      string
	workload bool
	// attributes are those of the subject, none where the resource is only a part of it.
	attributes pcommon.Map
	// host is the machine's name, if the subject is one.
	host string
}

// ownScope tells whether metrics are the receiver's. Some ways lose the name.
func ownScope(scope pcommon.InstrumentationScope) bool {
	return scope.Name() == metadata.ScopeName || scope.Name() == ""
}

// subjectOf finds the subject of a resource: a workload, a machine, or for metrics
// of others the resource itself.
func (c *Collector) subjectOf(rm pmetric.ResourceMetrics) subject {
	attrs := rm.Resource().Attributes()
	own := false
	for _, sm := range rm.ScopeMetrics().All() {
		own = own || ownScope(sm.Scope())
	}
	if !own {
		return c.foreign(attrs)
	}
	instance := text(attrs, attrInstance)
	// `machine`, `machine/workload` or `machine/endpoint`.
	machine, _, isPart := strings.Cut(instance, "/")
	_, isEndpoint := attrs.Get(attrServer)
	switch {
	case isEndpoint:
		// It belongs to the machine whose collector asks it, as in W&B's own runs.
		return c.machine(cmp.Or(text(attrs, attrHost), machine), pcommon.NewMap())
	case isPart:
		return subject{key: "workload " + instance, workload: true, attributes: attrs}
	case text(attrs, attrKind) != "":
		return subject{key: "workload " + joined(attrs), workload: true, attributes: attrs}
	default:
		return c.machine(cmp.Or(text(attrs, attrHost), machine), attrs)
	}
}

func (c *Collector) machine(host string, attrs pcommon.Map) subject {
	host = cmp.Or(host, c.LocalHost)
	return subject{key: "host " + host, host: host, attributes: attrs}
}

// foreign finds the subject of metrics that are not the receiver's. Those of a
// machine as a whole go into its run.
func (c *Collector) foreign(attrs pcommon.Map) subject {
	whole, workload := true, false
	for key := range attrs.All() {
		switch first, _, _ := strings.Cut(key, "."); first {
		case "host", "os", "cloud":
		case "process", "container", "k8s":
			whole, workload = false, true
		default:
			whole = false
		}
	}
	if whole {
		return c.machine(text(attrs, attrHost), attrs)
	}
	return subject{key: "resource " + joined(attrs), workload: workload, attributes: attrs}
}

// joined tells resources apart by all that they say.
func joined(attrs pcommon.Map) string {
	values := maps.Collect(attrs.All())
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(values)) {
		b.WriteString(key + "=" + values[key].AsString() + ",")
	}
	return strings.TrimSuffix(b.String(), ",")
}

func text(attrs pcommon.Map, key string) string {
	value, ok := attrs.Get(key)
	if !ok {
		return ""
	}
	return value.AsString()
}
