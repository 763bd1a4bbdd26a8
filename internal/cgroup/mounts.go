// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
)

// ContainerOfMounts tells what the mount table of a process in a container
// tells of it, where a namespace hides the path of its group: runtimes mount
// /etc/hosts and its like from a folder with the container's ID.
//
// In a pod these files are the sandbox's, and the ID is not the container's:
// then there is the pod's UID alone.
func ContainerOfMounts(mounts []procread.Mount) Identity {
	var id Identity
	for i := range mounts {
		root := string(mounts[i].Root)
		if uid, ok := podOfMount(root); ok {
			return Identity{PodUID: uid}
		}
		if id.ContainerID != "" {
			continue
		}
		id.ContainerID, id.Runtime = containerOfMount(root)
	}
	return id
}

// podOfMount reads ".../pods/UID/etc-hosts", which kubelet makes.
func podOfMount(root string) (uid string, ok bool) {
	rest, ok := strings.CutSuffix(root, "/etc-hosts")
	if !ok {
		return "", false
	}
	uid, ok = lastAfter(rest, "/pods/")
	return uid, ok && isUID(uid)
}

// containerOfMount reads docker's ".../containers/ID/hosts" and its like, and
// podman's ".../STORAGE-containers/ID/userdata/...". The ID in containerd's
// ".../sandboxes/ID/hostname" is not the container's.
func containerOfMount(root string) (id, runtime string) {
	if folder, _, ok := strings.Cut(root, "/userdata/"); ok {
		if id, ok := lastAfter(folder, "-containers/"); ok && isContainerID(id) {
			return id, podman
		}
		return "", ""
	}
	for _, name := range []string{"/hostname", "/hosts", "/resolv.conf"} {
		folder, ok := strings.CutSuffix(root, name)
		if !ok {
			continue
		}
		if id, ok := lastAfter(folder, "/containers/"); ok && isContainerID(id) {
			return id, docker
		}
	}
	return "", ""
}

// lastAfter returns what follows the last occurrence of something.
func lastAfter(s, sep string) (string, bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", false
	}
	return s[i+len(sep):], true
}

func isContainerID(s string) bool { return len(s) == idLength && consistsOf(s, isHexDigit) }
