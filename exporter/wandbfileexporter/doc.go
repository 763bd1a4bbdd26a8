// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package wandbfileexporter writes metrics as W&B's offline runs, which W&B's own
// tools show (`wandb beta leet`) and upload (`wandb sync`).
package wandbfileexporter
