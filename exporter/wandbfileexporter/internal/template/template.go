// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package template fills the attributes of a resource into texts that users
// configure: `{host.name}`, `job {slurm.job.id|wandb.run_id|'none'}`.
package template

import (
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/collector/confmap"
)

// Template is text with places for attributes. Between braces stand the names of
// attributes, with | between them: the first that is there and not empty is taken.
// A name in single quotes stands for itself; it has no | and no }. {{ and }} are braces.
//
// It is a string, not what the text means, so that confmap treats it as one: a number
// in ${env:NAME} stays as it is written there, and the text is written back as it came.
type Template string

// part is text, and after it the first of several values.
type part struct {
	text    string
	choices []choice
}

type choice struct {
	attribute, literal string
}

// UnmarshalText reads a template, as confmap does for texts.
func (t *Template) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}

// Unmarshal is what confmap calls for a mapping: that of YAML in `name: {host.name}`.
func (*Template) Unmarshal(*confmap.Conf) error {
	return errors.New("is a mapping: a text that begins with a brace needs quotes")
}

// MarshalText gives the text, which confmap then has as a plain string.
func (t Template) MarshalText() ([]byte, error) { return []byte(t), nil }

// MustParse is Parse for templates that stand in the code.
func MustParse(text string) Template {
	t, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return t
}

// Parse checks a template. The error says what is wrong in which text.
func Parse(text string) (Template, error) {
	if _, err := parse(text); err != nil {
		return "", err
	}
	return Template(text), nil
}

func parse(text string) (parts []part, err error) {
	for rest := text; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			return append(parts, part{text: rest}), nil
		}
		brace := rest[i : i+1]
		before, after := rest[:i], rest[i+1:]
		if strings.HasPrefix(after, brace) {
			parts = append(parts, part{text: before + brace})
			rest = after[1:]
			continue
		}
		inside, after, closed := strings.Cut(after, "}")
		if brace == "}" || !closed {
			return nil, fmt.Errorf("%q has a single %s (write %s for a brace)", text, brace, brace+brace)
		}
		choices, err := parseChoices(inside)
		if err != nil {
			return nil, fmt.Errorf("%q: {%s}: %w", text, inside, err)
		}
		parts = append(parts, part{text: before, choices: choices})
		rest = after
	}
	return parts, nil
}

func parseChoices(inside string) ([]choice, error) {
	var choices []choice
	for name := range strings.SplitSeq(inside, "|") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return nil, errors.New("the name of an attribute is missing")
		case len(name) >= 2 && name[0] == '\'' && name[len(name)-1] == '\'':
			choices = append(choices, choice{literal: name[1 : len(name)-1]})
		case strings.ContainsAny(name, "'{ \t\n"):
			return nil, fmt.Errorf("%q is neither the name of an attribute nor 'quoted'", name)
		default:
			choices = append(choices, choice{attribute: name})
		}
	}
	return choices, nil
}

// Render fills in attributes. What is not there is left out. A text that Parse refuses
// stays as it is.
func (t Template) Render(attrs map[string]string) string {
	parts, err := parse(string(t))
	if err != nil {
		return string(t)
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.text)
		b.WriteString(p.value(attrs))
	}
	return b.String()
}

func (p part) value(attrs map[string]string) string {
	for _, c := range p.choices {
		value := c.literal
		if c.attribute != "" {
			value = attrs[c.attribute]
		}
		if value != "" {
			return value
		}
	}
	return ""
}
