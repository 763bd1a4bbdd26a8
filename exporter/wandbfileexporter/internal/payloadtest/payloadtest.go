// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package payloadtest makes payloads as the receiver does, for tests.
package payloadtest

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// Options say what is in a payload.
type Options struct {
	// Resource has the attributes of the only resource.
	Resource map[string]any
	// Start is since when counters count, Now when all was measured.
	Start, Now time.Time
	// Devices is how many GPUs, disks, cores and so on there are.
	Devices int
	// Vendors are the makers of GPUs; each has as many. Every one is a scope.
	Vendors []metadata.AttributeGpuVendor
	// Step is added to all values.
	Step int
}

// notTags are the methods for metrics of the receiver's own, which W&B has no tags for.
const notTags = "RecordWandbsys"

// Payload returns all metrics that the generated builder knows, in template naming,
// but for those about the receiver itself.
func Payload(o Options) pmetric.Metrics {
	all := pmetric.NewMetrics()
	for i, vendor := range o.Vendors {
		md := o.build(vendor, i > 0)
		if i == 0 {
			md.MoveTo(all)
			continue
		}
		md.ResourceMetrics().At(0).ScopeMetrics().MoveAndAppendTo(all.ResourceMetrics().At(0).ScopeMetrics())
	}
	_ = all.ResourceMetrics().At(0).Resource().Attributes().FromRaw(o.Resource)
	return all
}

func (o *Options) build(vendor metadata.AttributeGpuVendor, gpusOnly bool) pmetric.Metrics {
	config := metadata.NewDefaultMetricsBuilderConfig()
	scraperstest.SwitchAll(&config.Metrics, true)
	mb := metadata.NewMetricsBuilder(config, receivertest.NewNopSettings(receivertest.NopType),
		metadata.WithStartTime(pcommon.NewTimestampFromTime(o.Start)))
	for method, call := range reflect.ValueOf(mb).Methods() {
		if strings.HasPrefix(method.Name, "Record") && !strings.HasPrefix(method.Name, notTags) && (!gpusOnly || strings.HasPrefix(method.Name, "RecordGpu")) {
			o.record(call, vendor)
		}
	}
	return mb.Emit()
}

// record calls one of the builder's methods for each device.
func (o *Options) record(call reflect.Value, vendor metadata.AttributeGpuVendor) {
	seen := map[string]bool{}
	for i := range o.Devices {
		args := []reflect.Value{
			reflect.ValueOf(pcommon.NewTimestampFromTime(o.Now)),
			number(call.Type().In(1), 1000*i+o.Step),
		}
		var values []any
		for in := 2; in < call.Type().NumIn() && call.Type().In(in).Kind() != reflect.Slice; in++ {
			value := attribute(call.Type().In(in), i, vendor)
			args = append(args, value)
			values = append(values, value.Interface())
		}
		id := fmt.Sprint(values...)
		if seen[id] {
			continue
		}
		seen[id] = true
		if call.Type().IsVariadic() {
			args = append(args, reflect.ValueOf(metadata.WithGpuUUIDMetricAttribute(fmt.Sprintf("%s-%d", vendor, i))))
		}
		call.Call(args)
	}
}

func number(kind reflect.Type, value int) reflect.Value {
	if kind.Kind() == reflect.String { // the builder reads it
		return reflect.ValueOf(strconv.Itoa(value))
	}
	return reflect.ValueOf(value).Convert(kind)
}

// attribute returns the value of an attribute for device i.
func attribute(kind reflect.Type, i int, vendor metadata.AttributeGpuVendor) reflect.Value {
	switch {
	case kind == reflect.TypeFor[metadata.AttributeGpuVendor]():
		return reflect.ValueOf(vendor)
	case kind.Kind() == reflect.String:
		return reflect.ValueOf(fmt.Sprintf("/mnt/d.%d", i))
	case kind.Kind() == reflect.Int: // one of a set, from 1 on
		value := reflect.ValueOf(i + 1).Convert(kind)
		if value.Interface().(fmt.Stringer).String() == "" {
			return reflect.ValueOf(1).Convert(kind)
		}
		return value
	default:
		return reflect.ValueOf(i).Convert(kind)
	}
}
