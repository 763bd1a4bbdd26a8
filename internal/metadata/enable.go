// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"reflect"
	"slices"
)

// EnableUnlessSet turns the named metrics on, but for those of which the user said
// whether they are on.
func (ms *MetricsConfig) EnableUnlessSet(names ...string) {
	for field, metric := range reflect.ValueOf(ms).Elem().Fields() {
		named := slices.Contains(names, field.Tag.Get("mapstructure"))
		if named && !metric.FieldByName("enabledSetByUser").Bool() {
			metric.FieldByName("Enabled").SetBool(true)
		}
	}
}
