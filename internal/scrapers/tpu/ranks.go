// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"cmp"
	"slices"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

// runtimeID is the runtime's number of a device or chip, with the runtime that gave it:
// two jobs of different slices may have the same numbers.
type runtimeID struct {
	endpoint int
	id       int64
}

// ranks number what the runtimes number slice-wide from 0 on: by their ids, and where
// two runtimes have one id, by the runtimes first. What was seen once keeps its place
// while a runtime does not answer.
type ranks struct {
	ids []runtimeID
}

// maxRanks is above the number of devices that a machine has.
const maxRanks = 1024

// learn takes the ids of a scrape in. Limit is how many there can be, 0 where that is
// not known: then the ids of a scrape in which every runtime answered are all. Those
// of another job than before begin anew.
func (r *ranks) learn(ids []runtimeID, limit int, complete bool) {
	ids = unique(slices.Clone(ids))
	kept := slices.DeleteFunc(slices.Clone(r.ids), func(k runtimeID) bool { return hasMoved(k, ids) })
	if limit == 0 {
		limit = maxRanks
		if complete && len(ids) > 0 {
			kept = nil
		}
		kept = slices.DeleteFunc(kept, func(k runtimeID) bool { return r.isTaken(k, ids) })
	}
	all := unique(append(kept, ids...))
	if len(all) > limit {
		all = ids
	}
	slices.SortFunc(all, func(a, b runtimeID) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.endpoint, b.endpoint))
	})
	if collide(all) {
		slices.SortFunc(all, runtimeID.compare)
	}
	r.ids = all
}

// hasMoved tells whether another runtime has an id now, while the one that had it
// answered without it.
func hasMoved(k runtimeID, ids []runtimeID) bool {
	return !slices.Contains(ids, k) &&
		slices.ContainsFunc(ids, func(now runtimeID) bool { return now.id == k.id }) &&
		slices.ContainsFunc(ids, func(now runtimeID) bool { return now.endpoint == k.endpoint })
}

// isTaken tells whether an id that nobody told now, as it was, is told by a runtime that
// did not have it: one that now answers for all of the machine, as a rule. Nothing
// limits how many ids there would be otherwise.
func (r *ranks) isTaken(k runtimeID, ids []runtimeID) bool {
	return !slices.Contains(ids, k) && slices.ContainsFunc(ids, func(now runtimeID) bool {
		return now.id == k.id && !slices.Contains(r.ids, now)
	})
}

func (a runtimeID) compare(b runtimeID) int {
	return cmp.Or(cmp.Compare(a.endpoint, b.endpoint), cmp.Compare(a.id, b.id))
}

func unique(ids []runtimeID) []runtimeID {
	slices.SortFunc(ids, runtimeID.compare)
	return slices.Compact(ids)
}

// collide tells whether two runtimes have one id; the ids are in their order.
func collide(ids []runtimeID) bool {
	for i := 1; i < len(ids); i++ {
		if ids[i].id == ids[i-1].id {
			return true
		}
	}
	return false
}

// of returns the number of a device or chip, below 0 where it was not seen.
func (r *ranks) of(id runtimeID) int { return slices.Index(r.ids, id) }

// at returns the runtime's id of what has a number.
func (r *ranks) at(i int) optional.Of[int64] {
	if i < 0 || i >= len(r.ids) {
		return optional.Of[int64]{}
	}
	return optional.Some(r.ids[i].id)
}
