// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachResourceGoesIntoItsRun(t *testing.T) {
	endpoint := attrs{"service.name": "vllm", "service.instance.id": "node1/vllm", "server.address": "10.0.0.9", "server.port": 8000}
	local := maps.Clone(endpoint)
	local["host.name"], local["server.address"] = "node1", "127.0.0.1"
	nameless := maps.Clone(workloadAttrs)
	delete(nameless, "service.instance.id")
	for name, c := range map[string]struct {
		resource attrs
		foreign  bool
		want     string
		host     string
		workload bool
	}{
		"host":                            {resource: hostAttrs, want: "host node1", host: "node1"},
		"host by its instance alone":      {resource: attrs{"service.instance.id": "node1"}, want: "host node1", host: "node1"},
		"nothing":                         {resource: attrs{}, want: "host here", host: "here"},
		"workload":                        {resource: workloadAttrs, want: "workload node1/slurm-7", host: "node1", workload: true},
		"workload by its instance alone":  {resource: attrs{"service.instance.id": "node1/pid-1"}, want: "workload node1/pid-1", workload: true},
		"workload without instance":       {resource: nameless, want: "workload host.name=node1,service.name=wandbsys,slurm.job.id=7,wandbsys.workload.kind=slurm", host: "node1", workload: true},
		"remote endpoint":                 {resource: endpoint, want: "host node1", host: "node1"},
		"local endpoint":                  {resource: local, want: "host node1", host: "node1"},
		"endpoint without instance":       {resource: attrs{"server.address": "10.0.0.9"}, want: "host here", host: "here"},
		"foreign host":                    {foreign: true, resource: attrs{"host.name": "node1", "host.id": "x", "os.type": "linux", "cloud.region": "eu"}, want: "host node1", host: "node1"},
		"foreign without attributes":      {foreign: true, resource: attrs{}, want: "host here", host: "here"},
		"foreign machine without name":    {foreign: true, resource: attrs{"os.type": "linux"}, want: "host here", host: "here"},
		"foreign container":               {foreign: true, resource: attrs{"host.name": "node1", "container.id": "c"}, want: "resource container.id=c,host.name=node1", host: "node1", workload: true},
		"foreign pod":                     {foreign: true, resource: attrs{"k8s.pod.uid": "p"}, want: "resource k8s.pod.uid=p", workload: true},
		"foreign process":                 {foreign: true, resource: attrs{"process.pid": 3}, want: "resource process.pid=3", workload: true},
		"foreign service":                 {foreign: true, resource: attrs{"host.name": "node1", "service.name": "db"}, want: "resource host.name=node1,service.name=db", host: "node1"},
		"foreign that looks like a host":  {foreign: true, resource: attrs{"hostname": "node1"}, want: "resource hostname=node1"},
		"foreign with the receiver's too": {foreign: true, resource: attrs{"service.instance.id": "node1/x"}, want: "resource service.instance.id=node1/x"},
	} {
		t.Run(name, func(t *testing.T) {
			s := of(c.resource)
			if c.foreign {
				s = foreign(c.resource)
			}
			r := newRig(t, unknownToo).add(s.gauge("cpu", 0, 1).md)
			require.Len(t, r.Sources(), 1)
			subject := r.Sources()[0].Subject()
			assert.Equal(t, c.want, subject.Key)
			assert.Equal(t, c.workload, subject.Workload)
			assert.Equal(t, c.host, text(subject.Attributes, "host.name"))
			assert.Equal(t, []string{"cpu=1"}, keys(r.take()[c.want]))
		})
	}
}

func TestAnEndpointSaysNothingOfTheHost(t *testing.T) {
	endpoint := attrs{
		"host.name": "node1", "service.name": "vllm", "service.instance.id": "node1/vllm",
		"server.address": "::1", "url.scheme": "http", "wandb.label": "L",
	}
	for name, order := range map[string][]attrs{
		"before the host": {endpoint, hostAttrs},
		"after the host":  {hostAttrs, endpoint},
	} {
		t.Run(name, func(t *testing.T) {
			s := of(order[0]).gauge("openmetrics.vllm.a", 0, 1, "wandb.index", 3)
			s.and(order[1]).gauge("openmetrics.vllm.b", 0, 2, "wandb.index", 4)
			r := newRig(t).add(s.md)
			require.Len(t, r.Sources(), 1)
			assert.Equal(t, hostAttrs, r.Sources()[0].Subject().Attributes.AsRaw())
			label := map[bool][]string{
				true:  {"openmetrics.vllm.a.3/l:L=1", "openmetrics.vllm.b.4=2"},
				false: {"openmetrics.vllm.a.3=1", "openmetrics.vllm.b.4/l:L=2"},
			}[order[0]["server.address"] != nil]
			assert.Equal(t, map[string][]record{"host node1": {{items: label}}}, r.take(), "one record, and each its own label")
		})
	}
}

func TestTheRunsThatAreAskedFor(t *testing.T) {
	payload := of(hostAttrs).gauge("cpu", 0, 1).and(workloadAttrs).gauge("cpu", 0, 2).gauge("what", 0, 2).md
	for name, c := range map[string]struct {
		hosts, workloads bool
		want             []string
		dropped          map[string]int
	}{
		"host":      {hosts: true, want: []string{"host node1"}, dropped: map[string]int{}},
		"workloads": {workloads: true, want: []string{"workload node1/slurm-7"}, dropped: map[string]int{NoTag: 1}},
		"both":      {hosts: true, workloads: true, want: []string{"host node1", "workload node1/slurm-7"}, dropped: map[string]int{NoTag: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Hosts, o.Workloads = c.hosts, c.workloads }).add(payload)
			assert.Equal(t, c.want, slices.Sorted(maps.Keys(r.take())))
			assert.Equal(t, c.dropped, r.dropped)
		})
	}
}

func TestASubjectLearnsAndKeepsWhatItWas(t *testing.T) {
	r := newRig(t).add(of(hostAttrs).gauge("cpu", 0, 1).md)
	before := r.Sources()[0].Subject()
	assert.Same(t, before, r.add(of(hostAttrs).gauge("cpu", 1, 1).md).Sources()[0].Subject(), "nothing new")

	more := maps.Clone(hostAttrs)
	more["wandb.gpu_count"], more["os.type"] = int64(8), "other"
	delete(more, "service.name")
	after := r.add(of(more).gauge("cpu", 2, 1).md).Sources()[0].Subject()
	more["service.name"] = "wandbsys"
	assert.Equal(t, more, after.Attributes.AsRaw())
	assert.Equal(t, hostAttrs, before.Attributes.AsRaw(), "one that was handed out is not changed")
}

func TestTheAttributesOfASubjectAreBounded(t *testing.T) {
	r := newRig(t)
	for i := range 3 * maxAttrs {
		r.add(of(attrs{"host.name": "node1", "key" + string(rune('A'+i%26)) + string(rune(0x4e00+i)): i}).gauge("cpu", float64(i), 1).md)
	}
	r.add(of(attrs{"host.name": "node1", "os.type": "late"}).gauge("cpu", 0, 1).md)
	assert.Equal(t, maxAttrs, r.Sources()[0].Subject().Attributes.Len())
}

func TestPayloadsAreNotKept(t *testing.T) {
	payload := func() *scrape {
		return of(hostAttrs).
			gauge("gpu.temp", 0, 1, "gpu_index", 0, "gpu_vendor", "nvidia", "gpu_uuid", "U", "gpu_model", "M").
			gauge("gpu.temp", 0, 2, "gpu_index", 0, "gpu_vendor", "amd").
			gauge("my.metric", 0, 3, "k", "v").
			counter("network.recv", 0, 0, 4)
	}
	r, want := newRig(t, unknownToo), newRig(t, unknownToo)
	want.add(payload().md)
	md := payload().md
	r.add(md)
	rm := md.ResourceMetrics().At(0)
	rm.Resource().Attributes().PutStr("host.name", "changed")
	rm.Resource().Attributes().PutStr("os.type", "changed")
	for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
		m.SetName("changed")
		if m.Type() == 1 {
			m.Gauge().DataPoints().At(0).Attributes().PutStr("gpu_vendor", "changed")
			m.Gauge().DataPoints().At(0).Attributes().PutStr("gpu_model", "changed")
			m.Gauge().DataPoints().At(0).SetIntValue(99)
		}
	}
	assert.Equal(t, want.Sources()[0].Subject().Attributes.AsRaw(), r.Sources()[0].Subject().Attributes.AsRaw())
	assert.Equal(t, want.Sources()[0].Subject().GPUs, r.Sources()[0].Subject().GPUs)
	assert.Equal(t, want.take(), r.take())
}
