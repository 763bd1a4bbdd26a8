// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package naming is the one home of W&B's tag names. Scrapers know only the
// template form (metric `gpu.temp` with the attribute gpu_index); this package
// turns finished metrics into full tags (`gpu.0.temp`) just before the next
// consumer, reads such tags back, and finds the tag of W&B's SDK for a metric that
// is named in any of our styles.
package naming

import "fmt"

// Style says how metrics are named; it is the value of the `naming` key.
type Style string

const (
	// Template keeps the names of metadata.yaml; placeholders are attributes.
	Template Style = "template"
	// Tag gives the full tags of W&B's published list.
	Tag Style = "tag"
	// SDK gives the tags that W&B's SDK writes, with its label suffix; DCGM's
	// figures get the node as another one before it.
	SDK Style = "sdk"
	// Semconv gives the names of OpenTelemetry's semantic conventions.
	Semconv Style = "semconv"
)

// available is the allowed set, as error messages name it.
const available = "template, tag or sdk"

// Validate tells whether the style can be used. confmap names the key.
func (s Style) Validate() error {
	switch s {
	case Template, Tag, SDK:
		return nil
	case Semconv:
		return fmt.Errorf("%s is not available yet; use %s", s, available)
	default:
		return fmt.Errorf("unknown value %q; use %s", string(s), available)
	}
}
