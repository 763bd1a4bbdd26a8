// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"os"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// BenchmarkSnapshot reads all processes and follows our own tree.
func BenchmarkSnapshot(b *testing.B) {
	s := NewSnapshots("/")
	defer s.Close()
	var u TreeUsage
	b.ReportAllocs()
	for b.Loop() {
		followTree(b, s, &u)
	}
}

func followTree(b *testing.B, s *Snapshots, u *TreeUsage) {
	b.Helper()
	snap, err := s.Take(b.Context())
	require.NoError(b, err)
	u.Update(snap, snap.Tree(os.Getpid()))
}

// BenchmarkTreeAgainstChildren measures CPU time in one run: our snapshot with
// the times of a tree, and the walk through gopsutil's Children as W&B does it,
// which reads the processes' times as well.
func BenchmarkTreeAgainstChildren(b *testing.B) {
	for range 20 {
		c := startHeld("0")
		b.Cleanup(c.release)
	}
	s := NewSnapshots("/")
	defer s.Close()
	var u TreeUsage
	b.ReportAllocs()
	b.ResetTimer()
	ours := measured(b.N, func() { followTree(b, s, &u) })
	b.StopTimer()
	walks := min(b.N, 20) // each is dear
	theirs := measured(walks, func() {
		root, err := process.NewProcess(int32(os.Getpid()))
		require.NoError(b, err)
		walk(root)
	})
	b.ReportMetric(float64(ours.Microseconds()), "ours-cpu-us")
	b.ReportMetric(float64(theirs.Microseconds()), "gopsutil-cpu-us")
	b.ReportMetric(ours.Seconds()/theirs.Seconds(), "cpu-ratio")
}

func walk(p *process.Process) {
	_, _ = p.Times()
	children, _ := p.Children()
	for _, child := range children {
		walk(child)
	}
}

// measured is the CPU time of a call.
func measured(n int, fn func()) time.Duration {
	fn() // what is done once
	before := cpuTimeOf(unix.RUSAGE_SELF)
	for range n {
		fn()
	}
	return (cpuTimeOf(unix.RUSAGE_SELF) - before) / time.Duration(n)
}
