// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package filter chooses series of an endpoint by W&B's rules: an expression is
// searched for in "{endpoint}.{metric}", so that it needs no anchors, and may demand
// labels whose values other expressions are found in.
package filter

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
)

// Rule matches the series whose name has an expression, and whose labels all do.
type Rule struct {
	name   *regexp.Regexp
	labels []labelRule
}

type labelRule struct {
	name  string
	value *regexp.Regexp
}

// Parse reads rules in either of W&B's forms: a list of expressions, or a map of
// expressions to a map of labels to expressions. Nothing (nil, or an empty list or
// map) is no rule. There is an error for each wrong expression, which names it and
// where it stands; key is where the value does.
func Parse(key string, value any) ([]Rule, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case []any:
		return parseList(key, v)
	case map[string]any:
		return parseMap(key, v)
	}
	return nil, fmt.Errorf("%s: %q: must be a list of regular expressions, or a map of them to a map of labels to regular expressions", key, fmt.Sprint(value))
}

func parseList(key string, list []any) ([]Rule, error) {
	var rules []Rule
	var errs []error
	for i, item := range list {
		if !isScalar(item) {
			errs = append(errs, fmt.Errorf("%s::%d: must be a regular expression", key, i))
			continue
		}
		name, err := regexp.Compile(fmt.Sprint(item))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s::%d: %w", key, i, err))
			continue
		}
		rules = append(rules, Rule{name: name})
	}
	return rules, errors.Join(errs...)
}

func parseMap(key string, m map[string]any) ([]Rule, error) {
	var rules []Rule
	var errs []error
	for _, expression := range slices.Sorted(maps.Keys(m)) {
		name, err := regexp.Compile(expression)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
			continue
		}
		labels, err := parseLabels(key+"::"+expression, m[expression])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rules = append(rules, Rule{name: name, labels: labels})
	}
	return rules, errors.Join(errs...)
}

// parseLabels reads what a series' labels must have. No label means that the name
// alone decides.
func parseLabels(key string, value any) ([]labelRule, error) {
	if value == nil {
		return nil, nil
	}
	m, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: must be followed by a map of labels to regular expressions", key)
	}
	var rules []labelRule
	var errs []error
	for _, label := range slices.Sorted(maps.Keys(m)) {
		if !isScalar(m[label]) {
			errs = append(errs, fmt.Errorf("%s::%s: must be a regular expression", key, label))
			continue
		}
		expression, err := regexp.Compile(fmt.Sprint(m[label]))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s::%s: %w", key, label, err))
			continue
		}
		rules = append(rules, labelRule{name: label, value: expression})
	}
	return rules, errors.Join(errs...)
}

// isScalar: YAML makes numbers of expressions that look like them.
func isScalar(value any) bool {
	switch value.(type) {
	case string, int, int64, uint64, float64, bool:
		return true
	}
	return false
}

// Filter decides about the series of one endpoint. It remembers what it decided of
// each name and each label value, for as long as the endpoint shows them. It is not
// safe for concurrent use.
type Filter struct {
	prefix           string
	include, exclude []Rule

	scrape uint64
	names  memory[verdict]
	values map[*regexp.Regexp]*memory[bool]
}

// verdict is what a name says of its series.
type verdict struct {
	// never and always are final. Else a series is wanted if one of the label rules
	// in include matches (or all is set), and none in exclude.
	never, always, all bool
	include, exclude   [][]labelRule
}

// New returns a filter that keeps what matches a rule of include (everything if
// there is none) and none of exclude.
func New(endpoint string, include, exclude []Rule) *Filter {
	return &Filter{
		prefix:  endpoint + ".",
		include: include,
		exclude: exclude,
		names:   newMemory[verdict](),
		values:  map[*regexp.Regexp]*memory[bool]{},
	}
}

// Keep tells whether a series is wanted. It has the form of [exposition.Keep].
func (f *Filter) Keep(name string, labels exposition.Labels) bool {
	v := f.names.get(f.scrape, name, f.judge)
	switch {
	case v.never:
		return false
	case v.always:
		return true
	}
	return (v.all || f.anyMatches(v.include, labels)) && !f.anyMatches(v.exclude, labels)
}

// Next ends a scrape: what the endpoint no longer shows is forgotten in time.
func (f *Filter) Next() {
	f.names.sweep(f.scrape)
	for _, m := range f.values {
		m.sweep(f.scrape)
	}
	f.scrape++
}

func (f *Filter) judge(name string) verdict {
	subject := f.prefix + name
	v := verdict{all: len(f.include) == 0}
	for _, rule := range matching(f.include, subject) {
		v.all = v.all || len(rule.labels) == 0
		v.include = append(v.include, rule.labels)
	}
	for _, rule := range matching(f.exclude, subject) {
		v.never = v.never || len(rule.labels) == 0
		v.exclude = append(v.exclude, rule.labels)
	}
	v.never = v.never || !v.all && len(v.include) == 0
	v.always = v.all && len(v.exclude) == 0
	return v
}

func matching(rules []Rule, subject string) []Rule {
	var found []Rule
	for _, rule := range rules {
		if rule.name.MatchString(subject) {
			found = append(found, rule)
		}
	}
	return found
}

func (f *Filter) anyMatches(alternatives [][]labelRule, labels exposition.Labels) bool {
	return slices.ContainsFunc(alternatives, func(rules []labelRule) bool { return f.allMatch(rules, labels) })
}

func (f *Filter) allMatch(rules []labelRule, labels exposition.Labels) bool {
	for _, rule := range rules {
		value, ok := labels.Get(rule.name)
		if !ok || !f.hasExpression(rule.value, value) {
			return false
		}
	}
	return true
}

func (f *Filter) hasExpression(expression *regexp.Regexp, value string) bool {
	m := f.values[expression]
	if m == nil {
		fresh := newMemory[bool]()
		m = &fresh
		f.values[expression] = m
	}
	return m.get(f.scrape, value, expression.MatchString)
}
