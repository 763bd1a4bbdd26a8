// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
)

var (
	errNothing  = errors.New("it printed nothing")
	errUnknown  = errors.New(`the output is neither JSON nor has it a line "Device Info:"`)
	errNoDevice = errors.New("the JSON lists no device in a form that is known")
)

// Parse reads the devices that a tool printed, in its order, those that are made of
// others included. The form is recognised by its content:
//
//   - a list of objects: gcipuinfo's getDevices
//   - an object with a list `devices`: gc-inventory
//   - an object with a list `cards`: gc-monitor
//   - an object of objects by the number of the device: gcipuinfo's getDevicesAsJSON
//   - a text with a line "Device Info:": gc-info
//
// A list without devices is no error. Nothing is taken of what ends within.
func Parse(out []byte) ([]Device, error) {
	out = bytes.TrimPrefix(out, []byte("\xef\xbb\xbf"))
	trimmed := bytes.TrimSpace(out)
	switch {
	case len(trimmed) == 0:
		return nil, errNothing
	case trimmed[0] != '{' && trimmed[0] != '[':
		return parseText(out)
	}
	if err := checkJSON(trimmed); err != nil {
		return nil, err
	}
	if trimmed[0] == '[' {
		return devicesOf(elements(trimmed))
	}
	return parseObject(trimmed)
}

func checkJSON(document []byte) error {
	if json.Valid(document) {
		return nil
	}
	var all json.RawMessage
	err := json.Unmarshal(document, &all)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && syntax.Offset >= int64(len(document)) {
		return fmt.Errorf("the output ends within the JSON (%d bytes): %w", len(document), err)
	}
	return fmt.Errorf("the output is not JSON: %w", err)
}

func parseObject(document []byte) ([]Device, error) {
	var top struct {
		Devices, Cards json.RawMessage
	}
	for key, value := range members(document) {
		switch key {
		case "devices":
			top.Devices = value
		case "cards":
			top.Cards = value
		}
	}
	switch {
	case isList(top.Devices):
		return devicesOf(elements(top.Devices))
	case isList(top.Cards):
		return monitored(top.Cards)
	case top.Devices != nil || top.Cards != nil:
		return nil, errNoDevice
	}
	return devicesOf(members(document))
}

// devicesOf reads devices by their keys; a key that is a number counts where a device
// does not tell its own.
func devicesOf(values iter.Seq2[string, json.RawMessage]) ([]Device, error) {
	var all []Device
	position := 0
	for key, value := range values {
		if a, ok := attributesOf(value); ok {
			d := a.device(position)
			d.ID = d.ID.Or(index(text(key)))
			all = append(all, d)
		}
		position++
	}
	if position > 0 && len(all) == 0 {
		return nil, errNoDevice
	}
	return all, nil
}

// monitored reads the IPUs of all cards.
func monitored(cards json.RawMessage) ([]Device, error) {
	var all []Device
	position := 0
	for _, card := range elements(cards) {
		for key, value := range members(card) {
			if key != "ipus" {
				continue
			}
			for _, ipu := range elements(value) {
				if a, ok := attributesOf(ipu); ok {
					all = append(all, a.monitored(position))
				}
				position++
			}
		}
	}
	if position > 0 && len(all) == 0 {
		return nil, errNoDevice
	}
	return all, nil
}

func isList(value json.RawMessage) bool { return len(value) > 0 && value[0] == '[' }

// attributesOf reads an object.
func attributesOf(value json.RawMessage) (attributes, bool) {
	if len(value) == 0 || value[0] != '{' {
		return nil, false
	}
	var all map[string]any
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber() // the digits are what counts
	if err := dec.Decode(&all); err != nil {
		return nil, false
	}
	a := make(attributes, len(all))
	for name, v := range all {
		switch v := v.(type) {
		case string:
			a[name] = text(v)
		case json.Number:
			a[name] = text(v)
		}
	}
	return a, true
}

// elements yields the elements of a list, without keys. Anything else has none.
func elements(value json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		var all []json.RawMessage
		if json.Unmarshal(value, &all) != nil {
			return
		}
		for _, element := range all {
			if !yield("", element) {
				return
			}
		}
	}
}

// members yields the members of an object in their order. Anything else has none.
func members(value json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		dec := json.NewDecoder(bytes.NewReader(value))
		if begin, err := dec.Token(); err != nil || begin != json.Delim('{') {
			return
		}
		for dec.More() {
			key, err := dec.Token()
			var member json.RawMessage
			if err != nil || dec.Decode(&member) != nil {
				return
			}
			if name, ok := key.(string); !ok || !yield(name, member) {
				return
			}
		}
	}
}
