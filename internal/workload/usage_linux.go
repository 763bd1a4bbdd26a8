// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

// TreeUsage follows the CPU time of a process and its descendants, whatever
// starts and ends among them.
type TreeUsage struct {
	previous map[Key]member
	boot     string
	ticks    uint64
	known    bool
}

// member is what a process of the tree looked like at the last snapshot.
type member struct {
	own, children uint64
	parent        Key
	// owed is what it should have got by then from processes that were gone,
	// and had not.
	owed uint64
}

// Update takes the tree as it is in a snapshot (root first, as Tree returns
// it) and returns how many ticks of CPU time its processes used since the last
// one; ok is false at the first.
//
// A process that ends hands its time, and that of the children that it waited
// for, to the parent that waits for it. Counting only the living would lose the
// last interval of each worker; counting what the parents got as it comes would
// count the earlier intervals again. So what a process got counts less what is
// known already of the processes that are gone below it:
//
//	sum over p in the tree at both times of own1 - own0 + max(0, c1 - c0 - R(p))
//	+ sum over p that started since of own1 + c1
//
// where c is the time of children waited for, and R(p) the own0 + c0 of the
// members that are gone and whose nearest ancestor that is still in the tree
// is p. What of R(p) p did not get is looked for further up, for an orphan is
// waited for by the nearest ancestor that adopts such (a subreaper), and once
// more at the next snapshot, for a pass takes time: the child may have ended
// after p was read. Nothing is counted twice; time that a parent never gets
// (it ignores SIGCHLD, or the orphan went to init) is looked for in vain, and
// makes that of others get lost for as long.
func (u *TreeUsage) Update(s *Snapshot, tree []*Process) (ticks uint64, ok bool) {
	present := make(map[Key]member, len(tree))
	keys := make(map[int]Key, len(tree))
	for _, p := range tree {
		keys[p.Pid] = p.Key()
	}
	for _, p := range tree {
		present[p.Key()] = member{own: p.Own, children: p.Children, parent: keys[p.Parent]}
	}
	// A boot that is not shown, or not for once, tells nothing.
	if u.known && (u.boot == s.Boot || u.boot == "" || s.Boot == "") {
		ticks, ok = u.delta(s, tree, present), true
	}
	if s.Boot != "" {
		u.boot = s.Boot
	}
	u.previous, u.ticks, u.known = present, s.BootTicks, true
	return ticks, ok
}

func (u *TreeUsage) delta(s *Snapshot, tree []*Process, present map[Key]member) uint64 {
	var sum uint64
	got := make(map[Key]uint64, len(present))
	for key, now := range present {
		before, was := u.previous[key]
		switch {
		case was:
			sum += now.own - min(now.own, before.own)
			got[key] = now.children - min(now.children, before.children)
		case key.Start >= u.ticks:
			// Ticks are whole: one that started in the tick of the snapshot and
			// was not in it came after. An older one joined the tree just now,
			// and brings nothing.
			sum += now.own + now.children
		}
	}
	u.settle(s, tree, present, got)
	for _, ticks := range got {
		sum += ticks
	}
	return sum
}

// settle takes what is known already off what the processes of the tree got.
func (u *TreeUsage) settle(s *Snapshot, tree []*Process, present map[Key]member, got map[Key]uint64) {
	known := u.handedOver(s, present)
	for _, p := range tree {
		key := p.Key()
		takeOff(present, got, key, u.previous[key].owed)
		m := present[key]
		m.owed = takeOff(present, got, key, known[key])
		present[key] = m
	}
}

// takeOff takes ticks off what a process and its ancestors got, the nearest
// first, and returns those that none of them got.
func takeOff(present map[Key]member, got map[Key]uint64, key Key, ticks uint64) uint64 {
	for range len(present) {
		if ticks == 0 {
			return 0
		}
		part := min(ticks, got[key])
		got[key] -= part
		ticks -= part
		m, here := present[key]
		if !here {
			break
		}
		key = m.parent
	}
	return ticks
}

// handedOver is R: by process of the tree, what is known of the members that
// are gone from the machine below it.
func (u *TreeUsage) handedOver(s *Snapshot, present map[Key]member) map[Key]uint64 {
	known := map[Key]uint64{}
	for key, m := range u.previous {
		if _, here := present[key]; here || s.Has(key) {
			continue // one that left the tree alive has handed nothing over
		}
		if heir, ok := u.heir(m.parent, present); ok {
			known[heir] += m.own + m.children + m.owed
		}
	}
	return known
}

// heir is the nearest ancestor at the last snapshot that is still in the tree.
func (u *TreeUsage) heir(key Key, present map[Key]member) (Key, bool) {
	for range len(u.previous) {
		if _, here := present[key]; here {
			return key, true
		}
		m, was := u.previous[key]
		if !was {
			return Key{}, false
		}
		key = m.parent
	}
	return Key{}, false
}
