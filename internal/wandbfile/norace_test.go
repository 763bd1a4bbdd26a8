// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package wandbfile_test

// cutStep is how many bytes apart long payloads are cut.
const cutStep = 1
