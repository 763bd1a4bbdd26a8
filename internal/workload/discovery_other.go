// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package workload

// Discovery finds nothing: workloads beside the configured process are known on
// Linux only.
type Discovery struct{}

// NewDiscovery returns a Discovery.
func NewDiscovery(Options) *Discovery { return &Discovery{} }

// SetHolders does nothing.
func (*Discovery) SetHolders(string, []int) {}

// SetNames does nothing.
func (*Discovery) SetNames(Names) {}

// Close does nothing.
func (*Discovery) Close() {}
