// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wandbsys/otelcol-wandbsys/internal/kubelet"
)

// namer knows containers, fails, hangs, and counts how often it is asked.
type namer struct {
	knows []kubelet.Container
	err   error
	hangs chan struct{}
	deaf  bool // to the end of the context
	asked int
}

func (n *namer) Containers(ctx context.Context) ([]kubelet.Container, error) {
	n.asked++
	if n.hangs == nil {
		return n.knows, n.err
	}
	done := ctx.Done()
	if n.deaf {
		done = nil
	}
	select {
	case <-n.hangs:
		return n.knows, n.err
	case <-done:
		return nil, context.Cause(ctx)
	}
}

// inPodOf is a process in a container of a pod.
func inPodOf(pid int, uid, id string, env ...string) stranger {
	return named(pid, 1, "server").in("/kubepods/burstable/pod" + uid + "/" + id).with(env...)
}

const otherUID = "99999999-1111-2222-3333-444455556666"

func namesOf(v *View) map[int]string {
	names := map[int]string{}
	for _, w := range v.Workloads {
		names[w.Root.Pid] = w.Identity.Namespace + "/" + w.Identity.Pod + "/" + w.Identity.Container
	}
	return names
}

func TestNamesOfContainers(t *testing.T) {
	byID := func(namespace, pod, name, id string) kubelet.Container {
		return kubelet.Container{Namespace: namespace, Pod: pod, Name: name, ID: id}
	}
	devices := func(namespace, pod, name string, ids ...string) kubelet.Container {
		return kubelet.Container{Namespace: namespace, Pod: pod, Name: name, Devices: ids}
	}
	const host, gpus = "HOSTNAME=web", "NVIDIA_VISIBLE_DEVICES=GPU-2,GPU-1"
	tests := []struct {
		name      string
		knows     []kubelet.Container
		processes []stranger
		want      map[int]string
	}{
		{"nobody knows it", nil, []stranger{inPodOf(20, podUID, dockerID)}, map[int]string{20: "//"}},
		{"by its id", []kubelet.Container{byID("n", "web", "app", dockerID), byID("n", "web", "log", otherID)}, []stranger{inPodOf(20, podUID, dockerID)}, map[int]string{20: "n/web/app"}},
		{
			"by its id, in no pod that we see, when another was asked for",
			[]kubelet.Container{byID("n", "web", "app", dockerID)},
			[]stranger{named(20, 1, "sh").in(inDocker(dockerID)), inPodOf(21, podUID, otherID)},
			map[int]string{20: "n/web/app", 21: "//"},
		},
		{"the id is more than the environment", []kubelet.Container{byID("n", "web", "app", dockerID), devices("m", "other", "x")}, []stranger{inPodOf(20, podUID, dockerID, "HOSTNAME=other")}, map[int]string{20: "n/web/app"}},
		{"by the name in its environment, of one container", []kubelet.Container{devices("n", "web", "app"), devices("n", "db", "app")}, []stranger{inPodOf(20, podUID, dockerID, host)}, map[int]string{20: "n/web/app"}},
		{"of several containers the pod alone", []kubelet.Container{devices("n", "web", "app"), devices("n", "web", "log")}, []stranger{inPodOf(20, podUID, dockerID, host)}, map[int]string{20: "n/web/"}},
		{
			"of several containers by its devices",
			[]kubelet.Container{devices("n", "web", "app", "GPU-1", "GPU-2"), devices("n", "web", "log", "GPU-3"), devices("n", "web", "none")},
			[]stranger{inPodOf(20, podUID, dockerID, host, gpus)},
			map[int]string{20: "n/web/app"},
		},
		{
			"devices that are nobody's, or two have",
			[]kubelet.Container{devices("n", "web", "app", "GPU-1"), devices("n", "web", "log", "GPU-1")},
			[]stranger{inPodOf(20, podUID, dockerID, host, "NVIDIA_VISIBLE_DEVICES=all"), inPodOf(21, podUID, otherID, host, "NVIDIA_VISIBLE_DEVICES=GPU-1")},
			map[int]string{20: "n/web/", 21: "n/web/"},
		},
		{"two namespaces have a pod of this name", []kubelet.Container{devices("n", "web", "app"), devices("m", "web", "app")}, []stranger{inPodOf(20, podUID, dockerID, host)}, map[int]string{20: "//"}},
		{"a host name in no pod", []kubelet.Container{devices("n", "web", "app")}, []stranger{named(20, 1, "sh").in(inDocker(dockerID)).with(host)}, map[int]string{20: "//"}},
		{"no host name", []kubelet.Container{devices("n", "", "app")}, []stranger{inPodOf(20, podUID, dockerID)}, map[int]string{20: "//"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			f.put(systemd)
			f.put(tt.processes...)
			d := f.discovery(Options{Discover: everything})
			d.SetNames(&namer{knows: tt.knows})
			assert.Equal(t, tt.want, namesOf(f.view(d)))
			assert.Equal(t, tt.want, namesOf(f.view(d)))
		})
	}
}

func TestWhenNamesAreAskedFor(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1))
	n := &namer{}
	d := f.discovery(Options{Discover: everything, Match: []Rule{{}}})
	f.view(d) // nobody is to be asked
	d.SetNames(n)
	f.view(d)
	assert.Zero(t, n.asked, "no container, no question")
	f.put(named(19, 1, "sh").in(inDocker(podmanID)))
	f.view(d)
	assert.Zero(t, n.asked, "outside of pods nobody knows it")
	f.put(inPodOf(21, podUID, dockerID))
	for range 4 { // a view is 15 seconds
		f.view(d)
	}
	assert.Equal(t, 1, n.asked, "not again within a minute")
	f.put(inPodOf(22, podUID, otherID))
	f.view(d)
	assert.Equal(t, 2, n.asked, "but for a new one, and for that whose minute is over")
	n.knows = []kubelet.Container{{Namespace: "n", Pod: "p", Name: "a", ID: dockerID}, {Namespace: "n", Pod: "p", Name: "b", ID: otherID}}
	for range 4 {
		f.view(d)
	}
	assert.Equal(t, map[int]string{21: "n/p/a", 22: "n/p/b"}, onlyContainers(namesOf(f.view(d))))
	assert.Equal(t, 3, n.asked)
	for range 10 {
		f.view(d)
	}
	assert.Equal(t, 3, n.asked, "what is known is not asked for")
}

func onlyContainers(names map[int]string) map[int]string {
	for pid, name := range names {
		if name == "//" {
			delete(names, pid)
		}
	}
	return names
}

func TestNamesThatCannotBeHad(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, inPodOf(20, podUID, dockerID, "HOSTNAME=db"))
	logger, logged := observed()
	n := &namer{err: errors.New("refused")}
	d := f.discovery(Options{Discover: everything, Logger: logger})
	d.SetNames(n)
	for range 10 {
		assert.Equal(t, map[int]string{20: "//"}, namesOf(f.view(d)))
	}
	assert.Equal(t, 3, n.asked)
	assert.Equal(t, []string{"warn The names of pods and containers cannot be had; their ids are given alone"}, logged())

	// One of two sources answers.
	n.knows = []kubelet.Container{{Namespace: "n", Pod: "db", Name: "app"}}
	for range 4 {
		f.view(d)
	}
	assert.Equal(t, map[int]string{20: "n/db/app"}, namesOf(f.view(d)))
	assert.Empty(t, logged())

	n.knows, n.err = []kubelet.Container{{Namespace: "n", Pod: "web", Name: "app", ID: otherID}}, nil
	f.put(inPodOf(21, otherUID, otherID))
	assert.Equal(t, "n/web/app", namesOf(f.view(d))[21])
	assert.Empty(t, logged(), "it may come back")
	f.now = f.now.Add(noticeHold)
	assert.Equal(t, "n/web/app", namesOf(f.view(d))[21])
	assert.Equal(t, []string{"info No longer: The names of pods and containers cannot be had; their ids are given alone"}, logged())

	// A part of an answer takes away no name.
	n.knows, n.err = []kubelet.Container{{Namespace: "n", Pod: "x", Name: "y"}}, errors.New("refused")
	f.put(inPodOf(22, otherUID, podmanID))
	assert.Equal(t, map[int]string{20: "//", 21: "n/web/app", 22: "//"}, namesOf(f.view(d)))
	f.remove(21)
	n.knows = nil
	for range 10 {
		f.view(d)
	}
	assert.Empty(t, d.names.byID, "of those that are gone nothing is remembered")
	assert.LessOrEqual(t, len(d.names.asked), 2)
}

// Somebody who does not answer costs the names, and this once in a minute.
func TestNamesThatHang(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		f := newFixture(t)
		f.put(systemd, inPodOf(20, podUID, dockerID))
		logger, logged := observed()
		n := &namer{hangs: make(chan struct{}), deaf: deaf, knows: []kubelet.Container{{Namespace: "n", Pod: "p", Name: "a", ID: dockerID}}}
		d := f.discovery(Options{Discover: everything, Logger: logger})
		d.SetNames(n)
		for range 3 {
			assert.Equal(t, map[int]string{20: "//"}, namesOf(f.view(d)))
		}
		assert.Len(t, logged(), 1)
		close(n.hangs)
		assert.True(t, d.names.slot.Settle(t.Context()))
		assert.Equal(t, 1, n.asked)
		f.now = f.now.Add(time.Minute)
		assert.Equal(t, map[int]string{20: "n/p/a"}, namesOf(f.view(d)))
		assert.Empty(t, logged())
		f.now = f.now.Add(noticeHold)
		f.view(d)
		assert.Len(t, logged(), 1, "it is over, though nobody was asked since")
	}
}
