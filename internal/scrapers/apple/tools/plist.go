// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"

	"howett.net/plist"
)

// Limits of a document.
const (
	// MaxDocument is in bytes.
	MaxDocument = 1 << 20
	maxDepth    = 64
)

// parsePlist reads a property list in XML: dictionaries become maps, arrays slices,
// integers uint64 or int64, reals float64.
func parsePlist(document []byte) (value any, err error) {
	if err := checkPlist(document); err != nil {
		return nil, fmt.Errorf("reading a property list: %w", err)
	}
	if _, err := plist.Unmarshal(document, &value); err != nil {
		return nil, fmt.Errorf("reading a property list: %w", err)
	}
	return value, nil
}

// checkPlist bounds what the library does: it calls itself for each element in another,
// and takes what is no XML for one of the older forms.
func checkPlist(document []byte) error {
	if len(document) > MaxDocument {
		return fmt.Errorf("it is larger than %d bytes", MaxDocument)
	}
	d := xml.NewDecoder(bytes.NewReader(document))
	depth, elements := 0, 0
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && elements > 0:
			return nil
		case err != nil:
			return err
		}
		switch element := token.(type) {
		case xml.StartElement:
			if elements++; elements == 1 && element.Name.Local != "plist" {
				return fmt.Errorf("it begins with %.20q", element.Name.Local)
			}
			if depth++; depth > maxDepth {
				return fmt.Errorf("it is deeper than %d", maxDepth)
			}
		case xml.EndElement:
			depth--
		}
	}
}

// dictionary is what has this name in another one; nil when it is none.
func dictionary(value any, name string) map[string]any {
	all, _ := value.(map[string]any)
	found, _ := all[name].(map[string]any)
	return found
}

// number is what has this name; nil when it is none.
func number(all map[string]any, name string) *float64 {
	var v float64
	switch n := all[name].(type) {
	case uint64:
		v = float64(n)
	case int64:
		v = float64(n)
	case float64:
		v = n
	default:
		return nil
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// whole is the whole number that has this name.
func whole(all map[string]any, name string) (int64, bool) {
	switch n := all[name].(type) {
	case uint64:
		return int64(n), n <= math.MaxInt64
	case int64:
		return n, true
	}
	return 0, false
}

// text is what has this name: a string, or data that end with a zero.
func text(all map[string]any, name string) string {
	switch s := all[name].(type) {
	case string:
		return s
	case []byte:
		return string(bytes.TrimRight(s, "\x00"))
	}
	return ""
}
