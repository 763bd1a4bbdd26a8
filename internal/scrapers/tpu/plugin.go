// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/fetch"
)

const (
	pluginTimeout = 2 * time.Second
	// pluginMaxBody is far above what a machine's devices need, in bytes.
	pluginMaxBody = 4 << 20
	pluginAccept  = "text/plain;version=0.0.4;q=0.9,*/*;q=0.1"
	// nodeSuffix is that of the names of a machine's own series, which repeat what those
	// of pods say.
	nodeSuffix = "_node"
)

// plugin is the metrics endpoint of GKE's device plugin.
type plugin struct {
	// slot holds the one question.
	slot   guard.Slot
	client *fetch.Client
	parser *exposition.Parser
}

func newPlugin(c *PluginConfig, set scrapers.Settings) (*plugin, error) {
	timeout := c.ClientConfig.Timeout
	if timeout <= 0 {
		timeout = pluginTimeout
	}
	info := set.Receiver.BuildInfo
	client, err := fetch.New(fetch.Options{
		Config: c.ClientConfig, Timeout: timeout, Limit: pluginMaxBody, Accept: pluginAccept,
		UserAgent: info.Command + "/" + info.Version, Telemetry: set.Receiver.TelemetrySettings,
	})
	if err != nil {
		return nil, err
	}
	limits := exposition.DefaultLimits()
	limits.BodySize = pluginMaxBody
	return &plugin{client: client, parser: exposition.New(exposition.Options{Limits: limits})}, nil
}

func (p *plugin) start(host component.Host) { p.client.Start(host) }

// read asks the plugin.
func (p *plugin) read(ctx context.Context) *guard.Pending[*figures] {
	return guard.Go(ctx, &p.slot, p.ask)
}

func (p *plugin) ask(ctx context.Context) (*figures, error) {
	body, contentType, err := p.client.Get(ctx)
	if err != nil {
		return nil, err
	}
	scrape, err := p.parser.Parse(body, contentType, func(name string, _ exposition.Labels) bool {
		_, known := pluginMetric(name)
		return known
	})
	if err != nil {
		return nil, scrapers.NewFault("parse", err)
	}
	return pluginFigures(scrape.Families), nil
}

// pluginMetric finds a metric by the name of a series, of a pod or of the machine.
func pluginMetric(name string) (deviceMetric, bool) {
	name = strings.TrimSuffix(name, nodeSuffix)
	for m := range deviceTable {
		if plugin := deviceTable[m].plugin; plugin != "" && plugin == name {
			return deviceMetric(m), true
		}
	}
	return 0, false
}

// pluginRow is a reading of the plugin.
type pluginRow struct {
	metric deviceMetric
	number int64
	value  float64
	pod    pod
}

func pluginFigures(families []exposition.Family) *figures {
	var rows []pluginRow
	var ids []int64
	for i := range families {
		f := &families[i]
		m, ok := pluginMetric(f.Name)
		if !ok {
			continue
		}
		for k := range f.Samples {
			row, ok := pluginRowOf(m, &f.Samples[k])
			if !ok {
				continue
			}
			rows = append(rows, row)
			if !m.isNumberedByHost() {
				ids = append(ids, row.number)
			}
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	f := newFigures()
	for _, row := range rows {
		f.addRow(&row, ids)
	}
	return f
}

// isNumberedByHost says that the plugin numbers a metric's devices from 0 on each
// machine; the others have the numbers of the slice.
func (m deviceMetric) isNumberedByHost() bool {
	return m == tensorcoreUtilization || m == hbmBandwidth
}

// addRow takes a reading in. Of two for a device that of the pod counts, which says
// whose it is.
func (f *figures) addRow(row *pluginRow, ids []int64) {
	v := deviceValue{value: row.value, pod: row.pod}
	index := int(row.number)
	if !row.metric.isNumberedByHost() {
		index, _ = slices.BinarySearch(ids, row.number)
		v.device = optional.Some(row.number)
	}
	if old, has := f.devices[row.metric][index]; !has || old.pod == (pod{}) {
		f.devices[row.metric][index] = v
	}
}

// pluginRowOf reads a series. Other makers' plugins have the same names.
func pluginRowOf(m deviceMetric, s *exposition.Sample) (pluginRow, bool) {
	if maker, ok := s.Labels.Get("make"); ok && maker != "cloud-tpu" {
		return pluginRow{}, false
	}
	id, _ := s.Labels.Get("accelerator_id")
	number, err := strconv.ParseUint(id[strings.LastIndexByte(id, '-')+1:], 10, 31)
	if err != nil || !isFinite(s.Value) || s.Value < 0 || (m.isNumberedByHost() && number >= maxRanks) {
		return pluginRow{}, false
	}
	label := func(name string) string {
		v, _ := s.Labels.Get(name)
		return strings.Clone(v) // the body is overwritten by the next one
	}
	return pluginRow{m, int64(number), s.Value, pod{label("namespace"), label("pod"), label("container")}}, true
}

func (p *plugin) close(ctx context.Context) {
	if p.slot.Settle(ctx) {
		p.client.Shutdown()
	}
}
