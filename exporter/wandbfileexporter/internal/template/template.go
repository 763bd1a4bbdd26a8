// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package template fills the attributes of a resource into texts that users
// configure: `{host.name}`, `job {slurm.job.id|wandb.run_id|'none'}`.
package template

import (
	"errors"
	"fmt"
	"strings"
)

// Template is text with places for attributes. Between braces stand the names of
// attributes, with | between them: the first that is there and not empty is taken.
// A name in single quotes stands for itself; it has no | and no }. {{ and }} are braces.
type Template struct {
	parts []part
}

// part is text, or one of several values.
type part struct {
	text    string
	choices []choice
}

type choice struct {
	attribute, literal string
}

// Parse reads a template. The error says what is wrong in which text.
func Parse(text string) (Template, error) {
	var t Template
	for rest := text; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			t.text(rest)
			break
		}
		t.text(rest[:i])
		brace := rest[i : i+1]
		rest = rest[i+1:]
		if strings.HasPrefix(rest, brace) {
			t.text(brace)
			rest = rest[1:]
			continue
		}
		inside, after, closed := strings.Cut(rest, "}")
		if brace == "}" || !closed {
			return Template{}, fmt.Errorf("%q has a single %s (write %s for a brace)", text, brace, brace+brace)
		}
		choices, err := parseChoices(inside)
		if err != nil {
			return Template{}, fmt.Errorf("%q: {%s}: %w", text, inside, err)
		}
		t.parts = append(t.parts, part{choices: choices})
		rest = after
	}
	return t, nil
}

func (t *Template) text(s string) {
	if s == "" {
		return
	}
	if n := len(t.parts); n > 0 && t.parts[n-1].choices == nil {
		t.parts[n-1].text += s
		return
	}
	t.parts = append(t.parts, part{text: s})
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

// Render fills in attributes. What is not there is left out.
func (t Template) Render(attrs map[string]string) string {
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.text)
		for _, c := range p.choices {
			value := c.literal
			if c.attribute != "" {
				value = attrs[c.attribute]
			}
			if value != "" {
				b.WriteString(value)
				break
			}
		}
	}
	return b.String()
}
