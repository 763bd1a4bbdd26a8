// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What describes the endpoint is on its resource; what an endpoint passes on about
// others is not.
func TestTargetInfoDescribesTheEndpoint(t *testing.T) {
	for name, tt := range map[string]struct {
		bodies []string
		want   any
	}{
		"none":                        {[]string{"a 1\n"}, nil},
		"one":                         {[]string{"target_info{version=\"3\"} 1\na 1\n"}, "3"},
		"one that changes":            {[]string{"target_info{version=\"3\"} 1\n", "target_info{version=\"4\"} 1\n"}, "4"},
		"one that is not told again":  {[]string{"target_info{version=\"3\"} 1\n", "a 1\n"}, "3"},
		"one that stands there twice": {[]string{"target_info{version=\"3\"} 1\ntarget_info{version=\"3\"} 1\n"}, "3"},
		"those of others":             {[]string{"target_info{version=\"3\"} 1\ntarget_info{version=\"4\"} 1\n"}, nil},
		"one that gets company":       {[]string{"target_info{version=\"3\"} 1\n", "target_info{version=\"3\"} 1\ntarget_info{version=\"4\"} 1\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			next := 0
			server := serve(t, classicType, func() []byte { return []byte(tt.bodies[next]) })
			r := start(t, endpointsOf(map[string]any{"ep": server.URL}))
			for next = range tt.bodies {
				attributes := r.must().ResourceMetrics().At(0).Resource().Attributes().AsRaw()
				if next == len(tt.bodies)-1 {
					assert.Equal(t, tt.want, attributes["version"])
				}
			}
		})
	}
}
