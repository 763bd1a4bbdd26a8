// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package optional has figures that may be missing: a device that does not tell
// one has none, which is not 0.
package optional

// Of is a value, or none.
type Of[T any] struct {
	Value T
	Known bool
}

// Some returns a value that there is.
func Some[T any](v T) Of[T] { return Of[T]{v, true} }

// Or returns the value, and the other where there is none.
func (o Of[T]) Or(other Of[T]) Of[T] {
	if o.Known {
		return o
	}
	return other
}

// If returns a value that counts only when it is known.
func If[T any](v T, known bool) Of[T] { return Of[T]{v, known} }
