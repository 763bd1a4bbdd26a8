// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// pod is what is needed of a v1.Pod.
type pod struct {
	Metadata struct {
		Name        string      `json:"name"`
		Namespace   string      `json:"namespace"`
		UID         string      `json:"uid"`
		Annotations annotations `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Containers     []struct{} `json:"containers"`
		InitContainers []struct {
			RestartPolicy string `json:"restartPolicy"`
		} `json:"initContainers"`
	} `json:"spec"`
	Status struct {
		Containers          []containerStatus `json:"containerStatuses"`
		InitContainers      []containerStatus `json:"initContainerStatuses"`
		EphemeralContainers []containerStatus `json:"ephemeralContainerStatuses"`
	} `json:"status"`
}

// annotations are those that the kubelet sets.
type annotations struct {
	Source string `json:"kubernetes.io/config.source"`
	Hash   string `json:"kubernetes.io/config.hash"`
}

type containerStatus struct {
	Name        string `json:"name"`
	ContainerID string `json:"containerID"`
}

// parsePods reads a v1.PodList, and holds one pod of it at a time.
func parsePods(r io.Reader) ([]Container, error) {
	dec := json.NewDecoder(r)
	if err := expect(dec, json.Delim('{')); err != nil {
		return nil, err
	}
	var all []Container
	isList := false
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, unexpected(err)
		}
		if key != "items" {
			if err := dec.Decode(&json.RawMessage{}); err != nil {
				return nil, unexpected(err)
			}
			continue
		}
		isList = true
		if all, err = parseItems(dec, all); err != nil {
			return nil, err
		}
	}
	if err := expect(dec, json.Delim('}')); err != nil {
		return nil, err
	}
	if !isList {
		return nil, errors.New("there are no items in it")
	}
	// Reading to the end also lets a connection that is kept be used again.
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.Join(errors.New("something follows it"), err)
	}
	return all, nil
}

// parseItems adds the containers of the items, which are null when there are none.
func parseItems(dec *json.Decoder, all []Container) ([]Container, error) {
	start, err := dec.Token()
	switch {
	case err != nil:
		return nil, unexpected(err)
	case start == nil:
		return all, nil
	case start != json.Delim('['):
		return nil, fmt.Errorf("items begin with %v", start)
	}
	for dec.More() {
		var p pod
		if err := dec.Decode(&p); err != nil {
			return nil, unexpected(err)
		}
		all = p.appendContainers(all)
	}
	return all, expect(dec, json.Delim(']'))
}

// expect reads the next token, which must be this one.
func expect(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err != nil {
		return unexpected(err)
	}
	if got != want {
		return fmt.Errorf("%v stands where %v belongs", got, want)
	}
	return nil
}

// unexpected tells an end in the middle from one where it belongs.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendContainers adds the pod's containers that have been started.
func (p *pod) appendContainers(all []Container) []Container {
	c := Container{
		Namespace:  p.Metadata.Namespace,
		Pod:        p.Metadata.Name,
		PodUID:     p.uid(),
		Containers: p.count(),
	}
	for _, statuses := range [][]containerStatus{p.Status.Containers, p.Status.InitContainers, p.Status.EphemeralContainers} {
		for _, status := range statuses {
			_, id, ok := strings.Cut(status.ContainerID, "://")
			if !ok || id == "" {
				continue
			}
			c.Name, c.ID = status.Name, id
			all = append(all, c)
		}
	}
	return all
}

// uid returns the uid that cgroups are named after. For a static pod that is the
// hash of its manifest: the kubelet's own uid of it, but not that of the mirror
// pod which the API server has. Users can annotate their pods with any hash, but
// the source is always the kubelet's word.
func (p *pod) uid() string {
	a := p.Metadata.Annotations
	if a.Hash != "" && a.Source != "" && a.Source != "api" {
		return a.Hash
	}
	return p.Metadata.UID
}

// count returns how many containers run side by side. Init containers that are
// restarted always are sidecars.
func (p *pod) count() int {
	n := len(p.Spec.Containers)
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy == "Always" {
			n++
		}
	}
	return n
}
