// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package workload knows the processes of the machine and what belongs
// together among them. Linux only.
package workload
