// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
)

func TestContainerOfMounts(t *testing.T) {
	inDocker := Identity{ContainerID: ctr, Runtime: "docker"}
	inPodman := Identity{ContainerID: ctr, Runtime: "podman"}
	tests := []struct {
		name  string
		roots []string
		want  Identity
	}{
		{name: "no mounts"},
		{name: "a machine", roots: []string{"/", "/@home", "/var/lib/docker"}},
		{name: "docker: hostname", roots: []string{"/", "/var/lib/docker/containers/" + ctr + "/hostname"}, want: inDocker},
		{name: "docker: hosts", roots: []string{"/var/lib/docker/containers/" + ctr + "/hosts"}, want: inDocker},
		{name: "docker: resolv.conf", roots: []string{"/var/lib/docker/containers/" + ctr + "/resolv.conf"}, want: inDocker},
		{name: "docker: a disk of its own", roots: []string{"/containers/" + ctr + "/hostname"}, want: inDocker},
		{name: "docker: another file", roots: []string{"/var/lib/docker/containers/" + ctr + "/mounts/shm"}},
		{name: "docker: no ID", roots: []string{"/var/lib/docker/containers/" + ctr[1:] + "/hostname"}},
		{name: "the first counts", roots: []string{"/docker/containers/" + ctr + "/hosts", "/docker/containers/" + outer + "/hosts"}, want: inDocker},
		{name: "podman", roots: []string{"/home/u/.local/share/containers/storage/overlay-containers/" + ctr + "/userdata/hosts"}, want: inPodman},
		{name: "podman on a temporary file system", roots: []string{"/containers/storage/overlay-containers/" + ctr + "/userdata/.containerenv"}, want: inPodman},
		{name: "podman: another storage", roots: []string{"/containers/storage/vfs-containers/" + ctr + "/userdata/resolv.conf"}, want: inPodman},
		{name: "podman: no ID", roots: []string{"/containers/storage/overlay-containers/x/userdata/resolv.conf", "/userdata/hosts"}},
		{name: "a sandbox of containerd", roots: []string{"/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/" + ctr + "/hostname"}},
		{name: "a pod", roots: []string{"/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/" + ctr + "/hostname", "/var/lib/kubelet/pods/" + uid + "/etc-hosts"}, want: Identity{PodUID: uid}},
		{name: "a pod of another kubelet", roots: []string{"/data/k0s/kubelet/pods/" + uid + "/etc-hosts"}, want: Identity{PodUID: uid}},
		{name: "a static pod", roots: []string{"/pods/" + hash + "/etc-hosts"}, want: Identity{PodUID: hash}},
		{name: "a pod's volume", roots: []string{"/var/lib/kubelet/pods/" + uid + "/volumes/x"}},
		{name: "no pod", roots: []string{"/srv/pods/web/etc-hosts", "/etc-hosts"}},
		{name: "in a pod the ID is the sandbox's", roots: []string{"/docker/containers/" + ctr + "/hostname", "/kubelet/pods/" + uid + "/etc-hosts"}, want: Identity{PodUID: uid}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var mounts []procread.Mount
			for _, root := range tt.roots {
				mounts = append(mounts, procread.Mount{Root: []byte(root), MountPoint: []byte("/etc/hosts")})
			}
			assert.Equal(t, tt.want, ContainerOfMounts(mounts))
		})
	}
}

func FuzzContainerOfMounts(f *testing.F) {
	f.Add("/var/lib/docker/containers/" + ctr + "/hostname")
	f.Add("/containers/storage/overlay-containers/" + ctr + "/userdata/hosts")
	f.Add("/var/lib/kubelet/pods/" + uid + "/etc-hosts")
	f.Add("/userdata/-containers//userdata/")
	f.Fuzz(func(t *testing.T, root string) {
		id := ContainerOfMounts([]procread.Mount{{Root: []byte(root)}})
		require.True(t, id.ContainerID == "" || isContainerID(id.ContainerID))
		require.Equal(t, id.ContainerID == "", id.Runtime == "")
		require.True(t, id.PodUID == "" || isUID(id.PodUID))
		require.Contains(t, root, id.ContainerID)
		require.Contains(t, root, id.PodUID)
	})
}
