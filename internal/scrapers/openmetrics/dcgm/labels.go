// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
)

// names are the labels that say what a series is of. An empty one is as good as none.
type names struct {
	gpu, device string
	// Of these the first that is not empty counts.
	uuids  [3]string
	models [2]string
	nodes  [4]string
	// instance and profile are those of a MIG instance.
	instance, profile string
	// part says that the series is of a part of a GPU, or of something else.
	part bool
}

// read takes the labels in one pass, for there are many series.
func read(labels exposition.Labels) (n names) {
	for i := range labels {
		value := labels[i].Value
		switch labels[i].Name {
		case "gpu":
			n.gpu = value
		case "device":
			n.device = value
		case "UUID":
			n.uuids[0] = value
		case "uuid":
			n.uuids[1] = value
		case "gpu_uuid":
			n.uuids[2] = value
		case "modelName":
			n.models[0] = value
		case "model_name":
			n.models[1] = value
		case "node":
			n.nodes[0] = value
		case "hostname":
			n.nodes[1] = value
		case "Hostname":
			n.nodes[2] = value
		case "instance":
			n.nodes[3] = value
		case "GPU_I_ID":
			n.instance = value
		case "GPU_I_PROFILE":
			n.profile = value
		case "nvlink", "nvswitch", "cpu", "cpucore":
			n.part = n.part || value != ""
		}
	}
	return n
}

func (n *names) uuid() string  { return cmp.Or(n.uuids[:]...) }
func (n *names) model() string { return cmp.Or(n.models[:]...) }

// noInstance is the number of the GPU instance of what is a board.
const noInstance = -1

// place is where a GPU or a MIG instance is.
type place struct {
	// node is empty where it is not told.
	node            string
	index, instance int64
}

func (p place) board() place {
	p.instance = noInstance
	return p
}

// place tells where the series is from, unless it is from no GPU.
func (n *names) place() (at place, ok bool) {
	if n.part {
		return place{}, false
	}
	at = place{node: cmp.Or(n.nodes[:]...), instance: noInstance}
	if at.index, ok = number(cmp.Or(n.gpu, strings.TrimPrefix(n.device, "nvidia"))); !ok {
		return place{}, false
	}
	if n.instance != "" {
		at.instance, ok = number(n.instance)
	}
	return at, ok
}

// number reads a decimal number that a device may have.
func number(text string) (int64, bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int64(n), err == nil
}
