// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStyleValidate(t *testing.T) {
	for _, s := range []Style{Template, Tag, SDK} {
		require.NoError(t, s.Validate())
	}
	for name, tt := range map[string]struct {
		style Style
		want  string
	}{
		"semconv is refused until it works": {Semconv, "semconv is not available yet; use template, tag or sdk"},
		"a typo is named":                   {"tags", `unknown value "tags"; use template, tag or sdk`},
		"empty is no style":                 {"", `unknown value ""; use template, tag or sdk`},
		"case matters":                      {"Tag", `unknown value "Tag"; use template, tag or sdk`},
	} {
		t.Run(name, func(t *testing.T) {
			assert.EqualError(t, tt.style.Validate(), tt.want)
		})
	}
}
