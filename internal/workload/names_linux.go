// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/kubelet"
)

const (
	// namesTimeout is how much of a scrape's time the names may cost at most.
	namesTimeout = 2 * time.Second
	// namesRetry is how long a container that nobody knew is not asked for again.
	namesRetry = time.Minute
)

// containerNames remembers who containers are.
type containerNames struct {
	source Names
	slot   *guard.Slot
	byID   map[string]kubelet.Container
	// unidentified are those of which only the names are known.
	unidentified []kubelet.Container
	// asked is when a container was asked for in vain.
	asked map[string]time.Time
}

func newContainerNames() *containerNames {
	return &containerNames{slot: &guard.Slot{}, byID: map[string]kubelet.Container{}, asked: map[string]time.Time{}}
}

// add puts the names of pods and containers into identities. Whoever knows them
// is asked when there is a container that is not known yet, and not again soon.
func (n *containerNames) add(ctx context.Context, a *assignment) {
	if n.source == nil {
		return
	}
	var err error
	if unknown := n.unknown(a); len(unknown) > 0 {
		err = n.ask(ctx, a, unknown)
	}
	a.d.notice("names", err != nil, "The names of pods and containers cannot be had; their ids are given alone", zap.Error(err))
	for _, w := range a.drafts {
		n.name(&w.Identity, a.envOf(w))
	}
}

func (a *assignment) envOf(w *draft) *environment {
	if f := a.d.facts[w.Root.Key()]; f != nil {
		return f.env
	}
	return nil
}

// unknown returns the containers of pods that have no name and are due to be
// asked for.
func (n *containerNames) unknown(a *assignment) []string {
	var ids []string
	now := a.s.At
	for _, w := range a.drafts {
		id := w.Identity // a copy: to see whether it would get a name
		if id.ContainerID == "" || id.PodUID == "" || n.name(&id, a.envOf(w)) || now.Sub(n.asked[id.ContainerID]) < namesRetry {
			continue
		}
		ids = append(ids, id.ContainerID)
	}
	return ids
}

func (n *containerNames) ask(ctx context.Context, a *assignment, unknown []string) error {
	limit := share(ctx, namesTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("no answer within %s: %w", limit.Round(time.Millisecond), context.DeadlineExceeded))
	defer cancel()
	source := n.source
	all, err := guard.Call(ctx, n.slot, func(ctx context.Context) (answer, error) {
		all, err := source.Containers(ctx)
		return answer{all, err}, nil // what is known comes with the error
	})
	if err == nil {
		n.learn(all, a.drafts)
	}
	maps.DeleteFunc(n.asked, func(_ string, at time.Time) bool { return a.s.At.Sub(at) >= namesRetry })
	for _, id := range unknown {
		n.asked[id] = a.s.At
	}
	return cmp.Or(err, all.err)
}

// answer is what was told, and why it may not be all.
type answer struct {
	containers []kubelet.Container
	err        error
}

// learn remembers an answer. Of one that is not all, the names of what still runs
// stay.
func (n *containerNames) learn(told answer, drafts []*draft) {
	byID := make(map[string]kubelet.Container, len(told.containers))
	var unidentified []kubelet.Container
	for _, c := range told.containers {
		if c.ID == "" {
			unidentified = append(unidentified, c)
			continue
		}
		byID[c.ID] = c
	}
	if told.err != nil {
		for _, w := range drafts {
			id := w.Identity.ContainerID
			if c, ok := n.byID[id]; ok && byID[id].ID == "" {
				byID[id] = c
			}
		}
		if len(unidentified) == 0 {
			unidentified = n.unidentified
		}
	}
	n.byID, n.unidentified = byID, unidentified
}

// name puts the names into one identity, and tells whether they are known.
func (n *containerNames) name(id *identity.Workload, env *environment) bool {
	if id.ContainerID == "" {
		return false
	}
	if c, ok := n.byID[id.ContainerID]; ok {
		id.Namespace, id.Pod, id.Container = c.Namespace, c.Pod, c.Name
		return true
	}
	if id.PodUID == "" {
		return false
	}
	return n.nameByEnvironment(id, env)
}

// nameByEnvironment finds the pod by the name that its processes have in their
// environment, and the container when it is the pod's only one or the only one
// with its devices. The pod-resources API tells neither ids nor uids.
func (n *containerNames) nameByEnvironment(id *identity.Workload, env *environment) bool {
	pod := env.get(envHostname)
	if pod == "" {
		return false
	}
	var found []kubelet.Container
	for _, c := range n.unidentified {
		if c.Pod == pod {
			found = append(found, c)
		}
	}
	if len(found) == 0 || slices.ContainsFunc(found, func(c kubelet.Container) bool { return c.Namespace != found[0].Namespace }) {
		return false // two of that name: either may be it
	}
	id.Namespace, id.Pod = found[0].Namespace, pod
	if devices := env.get(envNVIDIADevices); len(found) > 1 && devices != "" {
		found = slices.DeleteFunc(found, func(c kubelet.Container) bool { return !sameDevices(c.Devices, devices) })
	}
	if len(found) == 1 {
		id.Container = found[0].Name
	}
	return true
}

// sameDevices compares ids with a list of them separated by commas.
func sameDevices(ids []string, list string) bool {
	listed := strings.Split(list, ",")
	ids = slices.Clone(ids)
	slices.Sort(ids)
	slices.Sort(listed)
	return slices.Equal(ids, listed)
}
