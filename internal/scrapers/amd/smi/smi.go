// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package smi reads AMD GPUs through the tools of AMD's ROCm, rocm-smi and its
// successor amd-smi. Both are Python programs that take most of a second and print
// JSON whose shape has changed with nearly every version.
//
// The shapes are those of AMD's sources and documentation and of recorded output;
// the extended figures of amd-smi (clocks, memory errors, energy, PCIe) are
// from the documentation alone.
package smi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

const (
	// maxIndex is the first index that no GPU has.
	maxIndex = 4096
	// maxGPUs is more than any machine has, partitions included.
	maxGPUs = 256
)

// gpus collects what is told of GPUs by their index.
type gpus[T any] struct{ byIndex map[int]T }

// set keeps what is told of the GPU whose index is the given value; of two with
// the same index it is the later one. What has no index is passed over.
func (g *gpus[T]) set(index json.RawMessage, read func(index int) T) error {
	n := counter(index)
	if !n.Known {
		return nil
	}
	if n.Value >= maxIndex {
		return fmt.Errorf("a GPU has the index %d, which is over the limit of %d", n.Value, maxIndex-1)
	}
	if g.byIndex == nil {
		g.byIndex = map[int]T{}
	}
	g.byIndex[int(n.Value)] = read(int(n.Value))
	if len(g.byIndex) > maxGPUs {
		return fmt.Errorf("there are more than %d GPUs", maxGPUs)
	}
	return nil
}

func (g *gpus[T]) sorted() []T {
	var all []T
	for _, index := range slices.Sorted(maps.Keys(g.byIndex)) {
		all = append(all, g.byIndex[index])
	}
	return all
}
