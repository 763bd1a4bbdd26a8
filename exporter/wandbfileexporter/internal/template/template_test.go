// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package template_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/template"
)

var attributes = map[string]string{
	"host.name": "node-1", "slurm.job.id": "12", "empty": "", "braces": "{host.name}", "it's": "odd", "": "no name", "none": "one",
}

func parse(t *testing.T, text string) template.Template {
	t.Helper()
	parsed, err := template.Parse(text)
	require.NoError(t, err)
	return parsed
}

func TestRender(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":                          {"", ""},
		"text alone":                       {"a 'b' | c", "a 'b' | c"},
		"an attribute":                     {"{host.name}", "node-1"},
		"attributes and text":              {"job {slurm.job.id} on {host.name}.", "job 12 on node-1."},
		"attributes side by side":          {"{slurm.job.id}{host.name}{slurm.job.id}", "12node-112"},
		"spaces around names":              {"{ host.name\t|\nx }", "node-1"},
		"the first that is there":          {"{x|slurm.job.id|host.name}", "12"},
		"an empty one is as one missing":   {"{empty|host.name}", "node-1"},
		"a missing one":                    {"a{x}b", "ab"},
		"an empty one":                     {"a{empty}b", "ab"},
		"none of several":                  {"a{x|y|empty}b", "ab"},
		"a literal":                        {"{'none'}", "none"},
		"a literal after what is missing":  {"{x|empty|'none'}", "none"},
		"a literal after what is there":    {"{host.name|'none'}", "node-1"},
		"what is after a literal":          {"{x|'none'|host.name}", "none"},
		"an empty literal":                 {"a{x|''}b", "ab"},
		"what is after an empty literal":   {"{x|''|host.name}", "node-1"},
		"spaces in a literal":              {"{x| ' no job ' }", " no job "},
		"quotes in a literal":              {"{'it's'}{'''}", "it's'"},
		"an opening brace in a literal":    {"{'{'}", "{"},
		"the name of an attribute, quoted": {"{'host.name'}", "host.name"},
		"braces":                           {"{{host.name}}", "{host.name}"},
		"braces around an attribute":       {"{{{host.name}}}", "{node-1}"},
		"braces alone":                     {"{{", "{"},
		"many braces":                      {"}}}}{{{{a}}{{", "}}{{a}{"},
		"braces in a value stay":           {"{braces}", "{host.name}"},
		"names are not only ASCII":         {"{größe|'ä'}…", "ä…"},
		"capitals are others":              {"{Host.Name|'none'}", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, parse(t, tt.text).Render(attributes))
		})
	}
}

func TestRenderWithoutAttributes(t *testing.T) {
	assert.Equal(t, "a-b", parse(t, "{host.name}a{x|'-'}b").Render(nil))
	assert.Empty(t, template.Template{}.Render(nil))
}

func TestParseRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"an opening brace":            {"a{b", `"a{b" has a single { (write {{ for a brace)`},
		"a closing brace":             {"a}b", `"a}b" has a single } (write }} for a brace)`},
		"two closing braces":          {"}a}", `"}a}" has a single } (write }} for a brace)`},
		"a new line within a name":    {"{a\nb}", `"{a\nb}": {a` + "\n" + `b}: "a\nb" is neither the name of an attribute nor 'quoted'`},
		"an opening brace at the end": {"{a}{", `"{a}{" has a single { (write {{ for a brace)`},
		"a third opening brace":       {"{{{", `"{{{" has a single { (write {{ for a brace)`},
		"a closing brace too many":    {"{a}}", `"{a}}" has a single } (write }} for a brace)`},
		"half of braces":              {"{{a}", `"{{a}" has a single } (write }} for a brace)`},
		"no name":                     {"x{}", `"x{}": {}: the name of an attribute is missing`},
		"spaces for a name":           {"{ \n}", `"{ \n}": { ` + "\n" + `}: the name of an attribute is missing`},
		"no first name":               {"{|a}", `"{|a}": {|a}: the name of an attribute is missing`},
		"no last name":                {"{a|}", `"{a|}": {a|}: the name of an attribute is missing`},
		"no name between":             {"{a||b}", `"{a||b}": {a||b}: the name of an attribute is missing`},
		"a space within a name":       {"{a b}", `"{a b}": {a b}: "a b" is neither the name of an attribute nor 'quoted'`},
		"a tab within a name":         {"{a\tb}", `"{a\tb}": {a` + "\t" + `b}: "a\tb" is neither the name of an attribute nor 'quoted'`},
		"a brace within":              {"{a{b}", `"{a{b}": {a{b}: "a{b" is neither the name of an attribute nor 'quoted'`},
		"one quote":                   {"{'}", `"{'}": {'}: "'" is neither the name of an attribute nor 'quoted'`},
		"no closing quote":            {"{'a}", `"{'a}": {'a}: "'a" is neither the name of an attribute nor 'quoted'`},
		"no opening quote":            {"{a'}", `"{a'}": {a'}: "a'" is neither the name of an attribute nor 'quoted'`},
		"a quoted choice":             {"{'a|b'}", `"{'a|b'}": {'a|b'}: "'a" is neither the name of an attribute nor 'quoted'`},
		"text after a literal":        {"{'a'b}", `"{'a'b}": {'a'b}: "'a'b" is neither the name of an attribute nor 'quoted'`},
		"double quotes with spaces":   {`{"a b"}`, `"{\"a b\"}": {"a b"}: "\"a b\"" is neither the name of an attribute nor 'quoted'`},
		"the first of two errors":     {"{a b}{}", `"{a b}{}": {a b}: "a b" is neither the name of an attribute nor 'quoted'`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := template.Parse(tt.text)
			require.EqualError(t, err, tt.want)
			assert.Zero(t, got)
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("job {slurm.job.id|x|'none'} on {host.name}", "node-1")
	f.Add("{{a}} {'{'}", "")
	f.Add("{a", "{")
	f.Add("}", "}")
	f.Add("{ a |''}", "'")
	f.Fuzz(func(t *testing.T, text, value string) {
		attrs := map[string]string{"host.name": value, "a": value, "": value}
		escaped := strings.NewReplacer("{", "{{", "}", "}}").Replace(text)
		require.Equal(t, text, parse(t, escaped).Render(attrs))

		parsed, err := template.Parse(text)
		if err != nil {
			require.True(t, strings.ContainsAny(text, "{}"))
			return
		}
		got := parsed.Render(attrs)
		if !strings.ContainsAny(text, "{}") {
			require.Equal(t, text, got)
		}
		require.Equal(t, got+text, parse(t, text+escaped).Render(attrs))
	})
}
