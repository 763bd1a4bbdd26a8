// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/payloadtest"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

func TestAllNamingsGiveTheSameRecords(t *testing.T) {
	vendors := [][]metadata.AttributeGpuVendor{
		{metadata.AttributeGpuVendorNvidia},
		{metadata.AttributeGpuVendorAmd, metadata.AttributeGpuVendorNvidia},
		{metadata.AttributeGpuVendorApple},
	}
	for _, label := range []string{"", "rank 0", "a/l:b"} {
		for i, v := range vendors {
			t.Run(fmt.Sprintf("label %q, makers %d", label, i), func(t *testing.T) {
				resource := map[string]any{"host.name": "node1", "service.instance.id": "node1"}
				if label != "" {
					resource["wandb.label"] = label
				}
				var payloads []pmetric.Metrics
				for n := range 3 {
					payloads = append(payloads, payloadtest.Payload(payloadtest.Options{
						Resource: resource, Devices: 3, Vendors: v, Step: n,
						Start: began, Now: began.Add(time.Duration(n) * 10 * time.Second),
					}))
				}
				want := collected(t, payloads, naming.Template, label)
				require.Len(t, want, 3)
				require.Greater(t, len(want[0].items), 200)
				assert.Equal(t, want, collected(t, payloads, naming.Tag, label))
				assert.Equal(t, want, collected(t, payloads, naming.SDK, label))
			})
		}
	}
}

// collected are the records of payloads in a style, their items in the order of the keys.
func collected(t *testing.T, payloads []pmetric.Metrics, style naming.Style, label string) []record {
	t.Helper()
	r := newRig(t)
	for _, md := range payloads {
		r.add(scraperstest.InNaming(style, label, md))
	}
	if style == naming.Template { // gpu.mig.* has no tag
		assert.Equal(t, []string{NoTag}, slices.Collect(maps.Keys(r.dropped)))
	} else {
		assert.Empty(t, r.dropped)
	}
	records := r.take()[host]
	for _, record := range records {
		slices.Sort(record.items)
	}
	return records
}

// TestKeysAreTheNamesInSDKStyle holds the keys against the names that the receiver
// itself gives, not against what this package made of them.
func TestKeysAreTheNamesInSDKStyle(t *testing.T) {
	payload := payloadtest.Payload(payloadtest.Options{
		Resource: map[string]any{"host.name": "node1", "wandb.label": "L"}, Devices: 2, Start: began, Now: began,
		Vendors: []metadata.AttributeGpuVendor{metadata.AttributeGpuVendorNvidia},
	})
	var want, got []string
	for _, m := range scraperstest.InNaming(naming.SDK, "L", payload).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		want = append(want, m.Name())
	}
	r := newRig(t).add(payload)
	r.CloseAll()
	for _, item := range r.Sources()[0].Ready().Items {
		got = append(got, item.Key)
	}
	assert.ElementsMatch(t, want, got)
}
