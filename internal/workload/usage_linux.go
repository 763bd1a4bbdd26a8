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
	// inDebt tells that a member is owed something, or has something adrift.
	inDebt bool
}

// member is what a process of the tree looked like at the last snapshot.
type member struct {
	own, children uint64
	parent        Key
	// owed is what it should have got by then from children that were gone, and
	// had not; adrift is what it or one of its ancestors should have got.
	owed, adrift uint64
	// foreign time counts elsewhere.
	foreign bool
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
// is p. What of R(p) p did not get stays with p when p was the parent and lives
// on, for nobody else can have waited. Otherwise it is looked for further up:
// when its parent ends, a process becomes an orphan, and is waited for by the
// nearest ancestor that adopts such (a subreaper). Both are looked for once more
// at the next snapshot, for a pass takes time: the child may have ended after p
// was read. Nothing is counted twice; time that a parent never gets (it ignores
// SIGCHLD, or the orphan went to init) is looked for in vain, and makes that of
// others get lost for as long.
func (u *TreeUsage) Update(s *Snapshot, tree []*Process) (ticks uint64, ok bool) {
	return u.update(s, tree, nil)
}

// Follow is Update for a workload: of processes of its tree or group that belong
// to another one nothing counts here, neither while they live nor when those
// that are the workload's own get their time.
func (u *TreeUsage) Follow(s *Snapshot, w *Workload) (ticks uint64, ok bool) {
	return u.update(s, w.around, w.foreign)
}

func (u *TreeUsage) update(s *Snapshot, tree []*Process, foreign map[int]bool) (ticks uint64, ok bool) {
	present := make(map[Key]member, len(tree))
	keys := make(map[int]Key, len(tree))
	for _, p := range tree {
		// Parents come before their children: rings, which a pass that is not one
		// instant may show, are cut.
		present[p.Key()] = member{own: p.Own, children: p.Children, parent: keys[p.Parent], foreign: foreign[p.Pid]}
		keys[p.Pid] = p.Key()
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
			got[key] = now.children - min(now.children, before.children)
			if !now.foreign {
				sum += now.own - min(now.own, before.own)
			}
		case key.Start >= u.ticks && !now.foreign:
			// Ticks are whole: one that started in the tick of the snapshot and
			// was not in it came after. An older one joined the tree just now,
			// and brings nothing.
			sum += now.own + now.children
		}
	}
	u.settle(s, tree, present, got)
	for key, ticks := range got {
		if !present[key].foreign {
			sum += ticks
		}
	}
	return sum
}

// settle takes what is known already off what the processes of the tree got:
// first what can only be with the parent itself.
func (u *TreeUsage) settle(s *Snapshot, tree []*Process, present map[Key]member, got map[Key]uint64) {
	owed, adrift := u.handedOver(s, present)
	if len(owed)+len(adrift) == 0 && !u.inDebt {
		return
	}
	u.inDebt = false
	orphans := make([]uint64, 0, len(tree))
	for _, p := range tree {
		key := p.Key()
		before, now := u.previous[key], present[key]
		old := before.adrift
		if p.Zombie {
			old += before.owed
		} else {
			takeFrom(got, key, before.owed)
		}
		now.owed = takeFrom(got, key, owed[key])
		present[key] = now
		orphans = append(orphans, old)
	}
	climb := climber{previous: u.previous, got: got, next: map[Key]Key{}}
	for i, p := range tree {
		key := p.Key()
		climb.take(key, orphans[i])
		now := present[key]
		now.adrift = climb.take(key, adrift[key])
		u.inDebt = u.inDebt || now.owed+now.adrift > 0
		present[key] = now
	}
}

// takeFrom takes ticks off what a process got, and returns those that it did
// not get.
func takeFrom(got map[Key]uint64, key Key, ticks uint64) uint64 {
	part := min(ticks, got[key])
	if part > 0 {
		got[key] -= part
	}
	return ticks - part
}

// climber takes ticks off what a process and its ancestors at the last snapshot
// got: who adopts an orphan was an ancestor then, and may be none of a process
// that was itself adopted since.
type climber struct {
	previous map[Key]member
	got      map[Key]uint64
	// next leads from a process that has nothing left up to one that may have.
	next map[Key]Key
}

// take takes from the nearest first, and returns what none of them got.
func (c *climber) take(key Key, ticks uint64) uint64 {
	for ticks > 0 {
		var here bool
		if key, here = c.giver(key); !here {
			break
		}
		ticks = takeFrom(c.got, key, ticks)
	}
	return ticks
}

// giver is the nearest, from this process upwards, that has something left.
func (c *climber) giver(key Key) (Key, bool) {
	from, here := key, true
	for here && c.got[key] == 0 {
		key, here = c.above(key)
	}
	for from != key { // those between need not be asked again
		above, _ := c.above(from)
		c.next[from] = key
		from = above
	}
	return key, here
}

func (c *climber) above(key Key) (Key, bool) {
	above, ok := c.next[key]
	if !ok {
		above = c.previous[key].parent
	}
	return above, above != Key{}
}

// handedOver is R, by process of the tree: what is known of the members that
// are gone from the machine below it. It is owed to a parent that remains, else
// adrift.
func (u *TreeUsage) handedOver(s *Snapshot, present map[Key]member) (owed, adrift map[Key]uint64) {
	owed, adrift = map[Key]uint64{}, map[Key]uint64{}
	heirs := map[Key]Key{}
	for key, m := range u.previous {
		if s.Has(key) {
			continue // one that left the tree alive has handed nothing over
		}
		heir := u.heir(key, present, heirs)
		if heir == (Key{}) {
			continue
		}
		adrift[heir] += m.owed + m.adrift
		if parent := s.Find(m.parent.Pid); parent == nil || parent.Start != m.parent.Start || parent.Zombie {
			adrift[heir] += m.own + m.children
		} else if heir == m.parent {
			owed[heir] += m.own + m.children
		} // else the parent left the tree, and took it along
	}
	return owed, adrift
}

// heir is the nearest ancestor at the last snapshot that is still in the tree;
// the zero Key when there is none. It remembers them all.
func (u *TreeUsage) heir(key Key, present map[Key]member, heirs map[Key]Key) Key {
	var below []Key
	heir := Key{}
	for known := false; !known; {
		below = append(below, key)
		parent := u.previous[key].parent // the zero Key above the root
		if _, here := present[parent]; here || parent == (Key{}) {
			heir, known = parent, true
		} else {
			heir, known = heirs[parent]
		}
		key = parent
	}
	for _, key := range below {
		heirs[key] = heir
	}
	return heir
}
