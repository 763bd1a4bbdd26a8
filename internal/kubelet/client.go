// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelet asks a node's kubelet for the names of the containers on it.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"go.opentelemetry.io/collector/component"
)

// serviceAccountDir is where a pod finds the token of its service account, and
// the certificate of its cluster's authority.
const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// maxQuoted is how many bytes of what a server says go into an error.
const maxQuoted = 200

// Container is one container of the node.
type Container struct {
	Namespace, Pod, Name string
	// PodUID is the uid as a cgroup's path has it. ID is the container's without
	// its runtime. Both are empty when the list of pods does not have the container.
	PodUID, ID string
	// Containers is how many containers the pod runs side by side, which leaves
	// out init containers that come to an end, and ephemeral ones.
	Containers int
	// Devices are the ids of its devices, sorted, where pod-resources are asked.
	Devices []string
}

// Client asks the sources. It is safe for concurrent use, and keeps no
// connection between calls.
type Client struct {
	pods      *podList
	resources *podResources
}

// New returns a client for a valid section. It asks nobody yet.
func New(ctx context.Context, cfg Config, host component.Host, settings component.TelemetrySettings) (*Client, error) {
	c := &Client{}
	if section := cfg.Kubelet.Get(); section != nil {
		pods, err := newPodList(ctx, *section, serviceAccountDir, host, settings)
		if err != nil {
			return nil, fmt.Errorf("kubelet: %w", err)
		}
		c.pods = pods
	}
	if section := cfg.PodResources.Get(); section != nil {
		resources, err := newPodResources(section)
		if err != nil {
			return nil, fmt.Errorf("pod_resources: %w", err)
		}
		c.resources = resources
	}
	return c, nil
}

// Containers asks every source at once. When one fails, what the other knows
// comes with the error.
func (c *Client) Containers(ctx context.Context) ([]Container, error) {
	var listed, resources []Container
	var listErr, resourcesErr error
	var wg sync.WaitGroup
	if c.pods != nil {
		wg.Go(func() { listed, listErr = c.pods.containers(ctx) })
	}
	if c.resources != nil {
		wg.Go(func() { resources, resourcesErr = c.resources.containers(ctx) })
	}
	wg.Wait()
	return join(listed, resources), errors.Join(listErr, resourcesErr)
}

// join gives the containers of the list their devices, and adds those that the
// list does not have. Names are all that both sources know.
func join(listed, resources []Container) []Container {
	type name struct{ namespace, pod, container string }
	nameOf := func(c *Container) name { return name{c.Namespace, c.Pod, c.Name} }

	devices := make(map[name][]string, len(resources))
	for i := range resources {
		devices[nameOf(&resources[i])] = resources[i].Devices
	}
	known := make(map[name]bool, len(listed))
	for i := range listed {
		key := nameOf(&listed[i])
		listed[i].Devices = devices[key]
		known[key] = true
	}
	for i := range resources {
		if !known[nameOf(&resources[i])] {
			listed = append(listed, resources[i])
		}
	}
	return listed
}

// withTimeout returns a context whose cause names the key of the timeout, when
// that is what ended it.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %s (timeout): %w", d, context.DeadlineExceeded))
}

// causeOf returns why the context ended when it did, since that is what then
// made the call fail.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// quote makes what a server says fit for a line of a log.
func quote(text string) string {
	text = text[:min(len(text), maxQuoted)]
	text = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}
