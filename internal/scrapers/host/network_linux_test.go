// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func countedInterfaces(r *networkReading) []string {
	var names []string
	for _, n := range r.interfaces {
		if n.counted {
			names = append(names, n.name)
		}
	}
	return names
}

func TestCountedInterfaces(t *testing.T) {
	tests := []struct {
		name             string
		sys              []string
		interfaces       []string
		include, exclude []string
		want             []string
	}{
		{
			name:       "physical ones have a device",
			sys:        []string{"lo/", "eno1/device/", "enp3s0/device/", "docker0/bridge/", "veth1/", "vlan5/"},
			interfaces: []string{"lo", "eno1", "enp3s0", "docker0", "veth1", "vlan5"},
			want:       []string{"eno1", "enp3s0"},
		},
		{
			name:       "the slaves of a bond, not the bond",
			sys:        []string{"bond0/bonding/", "eth0/device/", "eth0/master/bonding/", "eth1/device/", "eth1/master/bonding/"},
			interfaces: []string{"bond0", "eth0", "eth1"},
			want:       []string{"eth0", "eth1"},
		},
		{
			name:       "a virtual function is counted by its master with a device",
			sys:        []string{"eth0/device/", "enP1s1/device/", "enP1s1/master/device/"},
			interfaces: []string{"eth0", "enP1s1"},
			want:       []string{"eth0"},
		},
		{
			name:       "a loopback is never physical",
			sys:        []string{"lo/device/", "eth0/device/"},
			interfaces: []string{"lo", "eth0"},
			want:       []string{"eth0"},
		},
		{
			name:       "inside a container the end of a veth pair",
			sys:        []string{"lo/", "eth0/"},
			interfaces: []string{"lo", "eth0"},
			want:       []string{"eth0"},
		},
		{
			name: "without a physical one, all but names of virtual ones",
			interfaces: []string{
				"lo", "ens3", "docker0", "br-1234", "vethab", "virbr0", "vnet1", "cni0", "flannel.1", "cali123", "cilium_host", "lxcbr0", "tunl0", "ip6tnl0",
				"sit0", "gre0", "erspan0", "dummy0", "ifb0", "kube-ipvs0", "nodelocaldns", "vxlan.calico", "wg0", "tun0", "tap0", "bond0", "team0", "podman0",
			},
			want: []string{"ens3"},
		},
		{
			name:       "only virtual ones: all but the loopback",
			interfaces: []string{"lo", "tun0", "wg0"},
			want:       []string{"tun0", "wg0"},
		},
		{name: "only the loopback: none", interfaces: []string{"lo"}},
		{
			name:       "SR-IOV beside a container's eth0: both",
			sys:        []string{"lo/", "eth0/", "net1/device/"},
			interfaces: []string{"lo", "eth0", "net1"},
			want:       []string{"eth0", "net1"},
		},
		{
			name:       "an eth0 that is a bridge, a bond or a slave is no uplink of a container",
			sys:        []string{"eth0/bridge/", "net1/device/"},
			interfaces: []string{"eth0", "net1"},
			want:       []string{"net1"},
		},
		{
			name:       "nor is one without a device that has a master",
			sys:        []string{"eth0/master/", "net1/device/"},
			interfaces: []string{"eth0", "net1"},
			want:       []string{"net1"},
		},
		{
			name:       "include replaces the choice, whole names only",
			sys:        []string{"eth0/device/", "eth1/device/"},
			interfaces: []string{"lo", "eth0", "eth1", "eth10", "docker0"},
			include:    []string{"eth1", "docker.*", "l"},
			want:       []string{"eth1", "docker0"},
		},
		{
			name:       "exclude takes out of either choice",
			sys:        []string{"eth0/device/", "eth1/device/"},
			interfaces: []string{"lo", "eth0", "eth1"},
			exclude:    []string{"eth0"},
			want:       []string{"eth1"},
		},
		{
			name:       "exclude beats include",
			interfaces: []string{"eth0", "eth1"},
			include:    []string{"eth.*"},
			exclude:    []string{".*1"},
			want:       []string{"eth0"},
		},
		{
			name:       "alternatives are part of one expression",
			interfaces: []string{"eth0", "eth1", "xeth1"},
			include:    []string{"eth0|eth1"},
			want:       []string{"eth0", "eth1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newTestMachine(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n", "proc/1/net/dev": netDev(tt.interfaces...)})
			for _, name := range tt.sys {
				m.write(map[string]string{"sys/class/net/" + name: ""})
			}
			m.cfg.Network = NetworkConfig{Include: tt.include, Exclude: tt.exclude}
			r := m.read(m.source())
			require.NotNil(t, r.network)
			assert.Equal(t, tt.want, countedInterfaces(r.network))
		})
	}
}

func TestNetworkOfTheMachineAndOfOurselves(t *testing.T) {
	m := newTestMachine(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n", "proc/1/net/dev": netDev("eth7"), "proc/net/dev": netDev("eth0")})
	src := m.source()
	assert.Equal(t, []interfaceReading{iface("eth7", 100, 200)}, m.read(src).network.interfaces)
	m.remove("proc/1")
	assert.Equal(t, []interfaceReading{iface("eth0", 100, 200)}, m.read(src).network.interfaces)
	m.remove("proc/net")
	assert.Nil(t, m.read(src).network, "neither is no error")
}

func TestNetDevThatIsNotUnderstood(t *testing.T) {
	m := newTestMachine(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n", "proc/1/net/dev": netDev("eth0") + "garbage\n"})
	src := m.source()
	r := src.read(t.Context(), want{})
	requireSources(t, r, "net/dev")
	assert.Equal(t, []string{"eth0"}, countedInterfaces(r.network), "a bad line costs itself")

	m.write(map[string]string{"proc/1/net/dev": "garbage\n"})
	r = src.read(t.Context(), want{})
	requireSources(t, r, "net/dev")
	assert.Nil(t, r.network)
}

func TestInvalidExpressionsAreRefused(t *testing.T) {
	_, err := newLinuxSource(&Config{Network: NetworkConfig{Include: []string{"("}, Exclude: []string{"["}}}, "", nil, systemEnvironment())
	require.ErrorContains(t, err, `network: include: "("`)
	require.ErrorContains(t, err, `exclude: "["`)
}
