// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import "encoding/binary"

// Label is a label as given; its value may be empty.
type Label struct{ Name, Value string }

// Labels are those of a series, sorted by name; no name occurs twice.
type Labels []Label

// Get returns the value of a label, and whether there is one of that name.
func (ls Labels) Get(name string) (string, bool) {
	if i := ls.find(name); i >= 0 {
		return ls[i].Value, true
	}
	return "", false
}

func (ls Labels) find(name string) int {
	for i := range ls {
		if ls[i].Name == name {
			return i
		}
	}
	return -1
}

// AppendKey appends the labels in a form that no other labels have: each text after
// its length.
func (ls Labels) AppendKey(to []byte) []byte {
	for i := range ls {
		to = appendText(appendText(to, ls[i].Name), ls[i].Value)
	}
	return to
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// sort sorts by name, as a rule a few labels that are sorted already, and tells
// whether no name occurs twice.
func (ls Labels) sort() bool {
	distinct := true
	for i := 1; i < len(ls); i++ {
		for j := i; j > 0 && ls[j].Name <= ls[j-1].Name; j-- {
			if ls[j].Name == ls[j-1].Name {
				distinct = false
				break
			}
			ls[j], ls[j-1] = ls[j-1], ls[j]
		}
	}
	return distinct
}

// take removes a label and returns its value, nothing if there is none.
func (ls *Labels) take(name string) string {
	i := ls.find(name)
	if i < 0 {
		return ""
	}
	value := (*ls)[i].Value
	*ls = append((*ls)[:i], (*ls)[i+1:]...)
	return value
}
