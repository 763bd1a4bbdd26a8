// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var testStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// baseDisk is a base device with these counters.
func baseDisk(name string, read, written uint64) deviceReading {
	return deviceReading{name: name, read: read, written: written, base: true}
}

func notBaseDisk(name string, read, written uint64) deviceReading {
	return deviceReading{name: name, read: read, written: written}
}

func disksAt(seconds int, devices ...deviceReading) *diskReading {
	return &diskReading{at: testStart.Add(time.Duration(seconds) * time.Second), devices: devices}
}

// iface is an interface that counts.
func iface(name string, received, sent uint64) interfaceReading {
	return interfaceReading{name: name, received: received, sent: sent, counted: true}
}

func ifaceAside(name string, received, sent uint64) interfaceReading {
	return interfaceReading{name: name, received: received, sent: sent}
}

func interfacesAt(seconds int, interfaces ...interfaceReading) *networkReading {
	return &networkReading{at: testStart.Add(time.Duration(seconds) * time.Second), interfaces: interfaces}
}

// partialDisks is a reading in which lines were not understood.
func partialDisks(r *diskReading) *diskReading {
	r.partial = true
	return r
}

func TestDiskCounters(t *testing.T) {
	tests := []struct {
		name                  string
		readings              []*diskReading
		wantRead, wantWritten uint64
	}{
		{
			name:     "the first reading is the baseline",
			readings: []*diskReading{disksAt(0, baseDisk("sda", 1000, 2000))},
		},
		{
			name:     "growth since then",
			readings: []*diskReading{disksAt(0, baseDisk("sda", 1000, 2000)), disksAt(1, baseDisk("sda", 1010, 2003)), disksAt(2, baseDisk("sda", 1011, 2003))},
			wantRead: 11, wantWritten: 3,
		},
		{
			name:     "a value that fell counts in full",
			readings: []*diskReading{disksAt(0, baseDisk("sda", 1000, 2000)), disksAt(1, baseDisk("sda", 1010, 2001)), disksAt(2, baseDisk("sda", 7, 2002))},
			wantRead: 10 + 7, wantWritten: 2,
		},
		{
			name:     "a device that is new counts in full",
			readings: []*diskReading{disksAt(0, baseDisk("sda", 1000, 2000)), disksAt(1, baseDisk("sda", 1000, 2000), baseDisk("sdb", 5, 6))},
			wantRead: 5, wantWritten: 6,
		},
		{
			name:     "what a device did stays when it is gone",
			readings: []*diskReading{disksAt(0, baseDisk("sda", 0, 0), baseDisk("sdb", 0, 0)), disksAt(1, baseDisk("sda", 1, 1), baseDisk("sdb", 5, 6)), disksAt(2, baseDisk("sda", 2, 2))},
			wantRead: 7, wantWritten: 8,
		},
		{
			name: "a device that is gone and back starts over",
			readings: []*diskReading{
				disksAt(0, baseDisk("sdb", 100, 100)), disksAt(1, baseDisk("sdb", 150, 100)), disksAt(2), disksAt(3, baseDisk("sdb", 4, 3)), disksAt(4, baseDisk("sdb", 5, 3)),
			},
			wantRead: 50 + 5, wantWritten: 3,
		},
		{
			name:     "only base devices make up the sum",
			readings: []*diskReading{disksAt(0, baseDisk("sda", 0, 0), notBaseDisk("dm-0", 0, 0)), disksAt(1, baseDisk("sda", 5, 5), notBaseDisk("dm-0", 5, 5))},
			wantRead: 5, wantWritten: 5,
		},
		{
			name:     "a device that becomes a base device does not bring its past",
			readings: []*diskReading{disksAt(0, notBaseDisk("sda", 0, 0)), disksAt(1, notBaseDisk("sda", 500, 500)), disksAt(2, baseDisk("sda", 501, 502))},
			wantRead: 1, wantWritten: 2,
		},
		{
			name: "a device that a partial baseline hid does not bring its past",
			readings: []*diskReading{
				partialDisks(disksAt(0, baseDisk("sda", 0, 0))),
				disksAt(1, baseDisk("sda", 1, 1), baseDisk("sdb", 500, 500)),
				partialDisks(disksAt(2, baseDisk("sda", 1, 1))),
				disksAt(3, baseDisk("sda", 1, 1), baseDisk("sdb", 502, 500), baseDisk("sdc", 10, 10)),
			},
			wantRead: 1 + 2 + 10, wantWritten: 1 + 10,
		},
		{
			name:     "no devices at the baseline",
			readings: []*diskReading{disksAt(0), disksAt(1, baseDisk("sda", 3, 4))},
			wantRead: 3, wantWritten: 4,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c diskCounters
			for _, r := range tt.readings {
				c.update(r)
			}
			assert.Equal(t, tt.wantRead, c.read)
			assert.Equal(t, tt.wantWritten, c.written)
			assert.Equal(t, timestamp(testStart), c.start)
		})
	}
}

func TestNetworkCounters(t *testing.T) {
	tests := []struct {
		name                   string
		readings               []*networkReading
		wantReceived, wantSent uint64
	}{
		{
			name:     "the first reading is the baseline",
			readings: []*networkReading{interfacesAt(0, iface("eth0", 1000, 2000))},
		},
		{
			name:         "growth since then",
			readings:     []*networkReading{interfacesAt(0, iface("eth0", 1000, 2000)), interfacesAt(1, iface("eth0", 1010, 2003))},
			wantReceived: 10, wantSent: 3,
		},
		{
			name:         "a value that fell counts in full",
			readings:     []*networkReading{interfacesAt(0, iface("eth0", 1000, 2000)), interfacesAt(1, iface("eth0", 7, 2001))},
			wantReceived: 7, wantSent: 1,
		},
		{
			name: "an interface that is new counts from now",
			readings: []*networkReading{
				interfacesAt(0, iface("eth0", 1, 1)), interfacesAt(1, iface("eth0", 1, 1), iface("eth1", 500, 600)), interfacesAt(2, iface("eth0", 1, 1), iface("eth1", 501, 602)),
			},
			wantReceived: 1, wantSent: 2,
		},
		{
			name: "an interface that returns from a container counts from now",
			readings: []*networkReading{
				interfacesAt(0, iface("eth0", 1, 1), iface("vf0", 100, 100)), interfacesAt(1, iface("eth0", 1, 1), iface("vf0", 110, 100)),
				interfacesAt(2, iface("eth0", 1, 1)), interfacesAt(3, iface("eth0", 1, 1), iface("vf0", 900, 900)), interfacesAt(4, iface("eth0", 1, 1), iface("vf0", 901, 900)),
			},
			wantReceived: 10 + 1,
		},
		{
			name: "one that returns when another leaves counts from now too",
			readings: []*networkReading{
				interfacesAt(0, iface("vf0", 100, 100)), interfacesAt(1, iface("vf1", 5, 5)), interfacesAt(2, iface("vf0", 900, 900)),
			},
		},
		{
			name: "an interface that begins to be counted does not bring its past",
			readings: []*networkReading{
				interfacesAt(0, ifaceAside("eth0", 0, 0)), interfacesAt(1, ifaceAside("eth0", 500, 500)), interfacesAt(2, iface("eth0", 501, 502)),
			},
			wantReceived: 1, wantSent: 2,
		},
		{
			name:     "others do not count",
			readings: []*networkReading{interfacesAt(0, ifaceAside("lo", 0, 0)), interfacesAt(1, ifaceAside("lo", 9, 9))},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c networkCounters
			for _, r := range tt.readings {
				c.update(r)
			}
			assert.Equal(t, tt.wantReceived, c.received)
			assert.Equal(t, tt.wantSent, c.sent)
			assert.Equal(t, timestamp(testStart), c.start)
		})
	}
}

func TestInterfacesThatAreGoneAreForgotten(t *testing.T) {
	var c networkCounters
	for i := range 100 { // as containers come and go
		c.update(interfacesAt(i, iface("eth0", 1, 1), ifaceAside(fmt.Sprint("veth", i), 1, 1)))
	}
	assert.Len(t, c.interfaces, 2)
}

// naiveSum adds up what the rules say, from the whole history of one counter:
// nil is a reading in which it was not there, or not counted.
func naiveSum(history []*uint64, counted []bool, newCountsInFull bool) uint64 {
	var sum uint64
	var last *uint64
	for i, value := range history {
		if value == nil {
			if !newCountsInFull {
				last = nil // what comes back begins anew
			}
			continue
		}
		var grown uint64
		switch {
		case i == 0: // the baseline
		case last == nil && newCountsInFull, last != nil && *value < *last:
			grown = *value
		case last != nil:
			grown = *value - *last
		}
		if counted[i] {
			sum += grown
		}
		last = value
	}
	return sum
}

// Random histories of four counters, each of which grows, falls, goes and
// comes back, against sums made from the whole history of each.
func TestCountersFollowTheRulesInAnyOrderOfEvents(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		const steps, names = 30, 4
		var histories [names][]*uint64
		var counted [names][]bool
		var disks diskCounters
		var network networkCounters
		var value [names]uint64
		var lastRead, lastReceived uint64
		for step := range steps {
			var devices []deviceReading
			var interfaces []interfaceReading
			for n := range names {
				isCounted := random.IntN(8) > 0
				counted[n] = append(counted[n], isCounted)
				if random.IntN(5) == 0 {
					histories[n] = append(histories[n], nil)
					continue
				}
				if random.IntN(6) == 0 {
					value[n] = random.Uint64N(50)
				} else {
					value[n] += random.Uint64N(1000)
				}
				v := value[n]
				histories[n] = append(histories[n], &v)
				name := fmt.Sprint("x", n)
				devices = append(devices, deviceReading{name: name, read: v, written: 2 * v, base: isCounted})
				interfaces = append(interfaces, interfaceReading{name: name, received: v, sent: 2 * v, counted: isCounted})
			}
			disks.update(disksAt(step, devices...))
			network.update(interfacesAt(step, interfaces...))
			require.GreaterOrEqual(t, disks.read, lastRead)
			require.GreaterOrEqual(t, network.received, lastReceived)
			lastRead, lastReceived = disks.read, network.received
		}
		var wantRead, wantReceived uint64
		for n := range names {
			wantRead += naiveSum(histories[n], counted[n], true)
			wantReceived += naiveSum(histories[n], counted[n], false)
		}
		require.Equal(t, wantRead, disks.read, "seed %d", seed)
		require.Equal(t, 2*wantRead, disks.written, "seed %d", seed)
		require.Equal(t, wantReceived, network.received, "seed %d", seed)
		require.Equal(t, 2*wantReceived, network.sent, "seed %d", seed)
		require.Equal(t, timestamp(testStart), disks.start)
	}
}
