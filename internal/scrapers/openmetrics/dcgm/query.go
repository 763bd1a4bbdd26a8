// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import "strings"

// DefaultQuery is the PromQL for every field that the query source has a metric for.
func DefaultQuery() string {
	var names []string
	for i := range fields {
		if fields[i].query {
			names = append(names, fields[i].name)
		}
	}
	return `{__name__=~"` + strings.Join(names, "|") + `"}`
}
