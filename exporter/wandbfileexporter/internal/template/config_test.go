// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package template_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/template"
)

// config is what an exporter's may be.
type config struct {
	Name  template.Template            `mapstructure:"name"`
	Group template.Template            `mapstructure:"group"`
	Notes *template.Template           `mapstructure:"notes"`
	Tags  []template.Template          `mapstructure:"tags"`
	Extra map[string]template.Template `mapstructure:"extra"`
}

func defaults() *config {
	return &config{Name: template.MustParse("{host.name|'host'}"), Tags: []template.Template{template.MustParse("system")}}
}

// provider expands ${env:NAME} as the collector's own does.
type provider map[string]string

func (p provider) Retrieve(_ context.Context, uri string, _ confmap.WatcherFunc) (*confmap.Retrieved, error) {
	return confmap.NewRetrievedFromYAML([]byte(p[strings.TrimPrefix(uri, "env:")]))
}
func (provider) Scheme() string                 { return "env" }
func (provider) Shutdown(context.Context) error { return nil }

// resolve reads a configuration as the collector does.
func resolve(t *testing.T, text string) *confmap.Conf {
	t.Helper()
	p := provider{"CONFIG": text, "JOB": "0042", "NAME": "node-{host.id}", "BAD": "{", "EMPTY": "", "TAGS": "[a, '{host.id}']"}
	resolver, err := confmap.NewResolver(confmap.ResolverSettings{
		URIs:              []string{"env:CONFIG"},
		ProviderFactories: []confmap.ProviderFactory{confmap.NewProviderFactory(func(confmap.ProviderSettings) confmap.Provider { return p })},
	})
	require.NoError(t, err)
	conf, err := resolver.Resolve(t.Context())
	require.NoError(t, err)
	return conf
}

func render(t template.Template) string {
	return t.Render(map[string]string{"host.name": "node-1", "host.id": "7", "slurm.job.id": "12"})
}

func TestConfigIsRead(t *testing.T) {
	for name, tt := range map[string]struct {
		yaml              string
		name, group, tags string
	}{
		"defaults":                            {"{}", "node-1", "", "system"},
		"texts":                               {"name: '{host.id} of {host.name}'\ngroup: job {slurm.job.id}", "7 of node-1", "job 12", "system"},
		"null":                                {"name:\ntags:", "", "", "system"},
		"an empty text":                       {"name: ''", "", "", "system"},
		"a list":                              {"tags: ['{host.id}', '', \"{x|'y'}\"]", "node-1", "", "7||y"},
		"an empty list":                       {"tags: []", "node-1", "", ""},
		"a list from the environment":         {"tags: '${env:TAGS}'", "node-1", "", "a|7"},
		"a part from the environment":         {"name: 'job-${env:JOB}'", "job-0042", "", "system"},
		"a template from the environment":     {"name: '${env:NAME}'", "node-7", "", "system"},
		"a number from the environment":       {"name: '${env:JOB}'\ntags: ['${env:JOB}']", "0042", "", "0042"},
		"nothing from the environment":        {"name: '${env:EMPTY}'", "", "", "system"},
		"a dollar sign that is written twice": {"name: '$${host.id}'", "$7", "", "system"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := defaults()
			require.NoError(t, resolve(t, tt.yaml).Unmarshal(cfg))
			assert.Equal(t, tt.name, render(cfg.Name))
			assert.Equal(t, tt.group, render(cfg.Group))
			var tags []string
			for _, tag := range cfg.Tags {
				tags = append(tags, render(tag))
			}
			assert.Equal(t, tt.tags, strings.Join(tags, "|"))
		})
	}
}

func TestConfigIsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ yaml, want string }{
		"a text":       {"name: a{b", `'name' "a{b" has a single { (write {{ for a brace)`},
		"in a list":    {"tags: [a, '}']", `'tags[1]' "}" has a single } (write }} for a brace)`},
		"from outside": {"group: '${env:BAD}'", `'group' "{" has a single {`},
		"a number":     {"name: 12", "'name' expected"},
		"braces without quotes, a mapping of YAML": {"name: {host.name}", "'name' is a mapping: a text that begins with a brace needs quotes"},
		"that in a list":    {"tags: [a, {b|c}]", "'tags[1]' is a mapping: a text"},
		"a text for a list": {"tags: 'a,b'", "'tags' source data must be an array or slice, got string"},
		"an empty mapping":  {"name: {}", "'name' is a mapping"},
		"a list":            {"name: [a]", "'name' expected"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, resolve(t, tt.yaml).Unmarshal(defaults()), tt.want)
		})
	}
}

func TestConfigIsWrittenBackAsItCame(t *testing.T) {
	const text = `
name: "{{x}} {host.name | 'it''s'}"
group: "0042"
notes: "${env:JOB}"
tags: ["{a|b}", "", "é\n"]
extra: {k: "{host.id}"}
`
	want := map[string]any{
		"name": "{{x}} {host.name | 'it''s'}", "group": "0042", "notes": "0042",
		"tags": []any{"{a|b}", "", "é\n"}, "extra": map[string]any{"k": "{host.id}"},
	}
	cfg := defaults()
	require.NoError(t, resolve(t, text).Unmarshal(cfg))
	conf := confmap.New()
	require.NoError(t, conf.Marshal(cfg))
	assert.Equal(t, want, conf.ToStringMap())

	asYAML, err := yaml.Marshal(conf.ToStringMap())
	require.NoError(t, err)
	again := &config{}
	require.NoError(t, resolve(t, string(asYAML)).Unmarshal(again))
	assert.Equal(t, cfg, again)

	asJSON, err := json.Marshal(conf.ToStringMap())
	require.NoError(t, err)
	again = &config{}
	require.NoError(t, resolve(t, string(asJSON)).Unmarshal(again))
	assert.Equal(t, cfg, again)
}

func TestConfigStructIsAccepted(t *testing.T) {
	require.NoError(t, componenttest.CheckConfigStruct(defaults()))
}
