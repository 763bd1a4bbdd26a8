// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfileexporter

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

// nameSource expands ${env:NAME} as the collector's own provider does.
type nameSource map[string]string

func (e nameSource) Retrieve(_ context.Context, uri string, _ confmap.WatcherFunc) (*confmap.Retrieved, error) {
	return confmap.NewRetrievedFromYAML([]byte(e[strings.TrimPrefix(uri, "env:")]))
}
func (nameSource) Scheme() string                 { return "env" }
func (nameSource) Shutdown(context.Context) error { return nil }

// resolveNames gives a section as the collector reads it.
func resolveNames(t *testing.T, text string) *confmap.Conf {
	t.Helper()
	e := nameSource{"SECTION": text, "JOB": "0042", "NAME": "node-{host.id}", "BAD": "{", "EMPTY": "", "TAGS": "[a, '{host.id}']"}
	resolver, err := confmap.NewResolver(confmap.ResolverSettings{
		URIs:              []string{"env:SECTION"},
		ProviderFactories: []confmap.ProviderFactory{confmap.NewProviderFactory(func(confmap.ProviderSettings) confmap.Provider { return e })},
	})
	require.NoError(t, err)
	conf, err := resolver.Resolve(t.Context())
	require.NoError(t, err)
	return conf
}

func TestTemplatesOfAConfiguration(t *testing.T) {
	attrs := map[string]string{"host.name": "node-1", "host.id": "7", "slurm.job.id": "12"}
	for name, tt := range map[string]struct {
		yaml              string
		name, notes, tags string
	}{
		"defaults":                            {"{}", "node-1", "", "wandbsys"},
		"texts":                               {"display_name: '{host.id} of {host.name}'\nnotes: job {slurm.job.id}", "7 of node-1", "job 12", "wandbsys"},
		"an empty text":                       {"display_name: ''", "", "", "wandbsys"},
		"nulls":                               {"display_name:\ntags:", "", "", "wandbsys"},
		"a list":                              {"tags: ['{host.id}', '', \"{x|'y'}\"]", "node-1", "", "7||y"},
		"an empty list":                       {"tags: []", "node-1", "", ""},
		"a text for a list":                   {"tags: a,{host.id}", "node-1", "", "a|7"},
		"a list from the environment":         {"tags: '${env:TAGS}'", "node-1", "", "a|7"},
		"a part from the environment":         {"display_name: 'job-${env:JOB}'", "job-0042", "", "wandbsys"},
		"a template from the environment":     {"display_name: '${env:NAME}'", "node-7", "", "wandbsys"},
		"a number from the environment":       {"display_name: '${env:JOB}'\ntags: ['${env:JOB}']", "0042", "", "0042"},
		"nothing from the environment":        {"display_name: '${env:EMPTY}'", "", "", "wandbsys"},
		"a dollar sign that is written twice": {"display_name: '$${host.id}'", "$7", "", "wandbsys"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := createDefaultConfig().(*Config)
			require.NoError(t, resolveNames(t, tt.yaml).Unmarshal(cfg))
			names, err := cfg.names()
			require.NoError(t, err)
			assert.Equal(t, tt.name, names.DisplayName.Render(attrs))
			assert.Equal(t, tt.notes, names.Notes.Render(attrs))
			var tags []string
			for _, tag := range names.Tags {
				tags = append(tags, tag.Render(attrs))
			}
			assert.Equal(t, tt.tags, strings.Join(tags, "|"))
		})
	}
}

func TestWrongTemplatesAreNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		yaml string
		want []string
	}{
		"a text":           {"display_name: a{b", []string{`display_name: "a{b" has a single { (write {{ for a brace)`}},
		"one in a list":    {"tags: [a, '}']", []string{`tags::1: "}" has a single } (write }} for a brace)`}},
		"from outside":     {"group: '${env:BAD}'", []string{`group: "{" has a single {`}},
		"a comma in a tag": {"tags: \"a,{x|'b,c'}\"", []string{`tags::1: "{x|'b" has a single {`, `tags::2: "c'}" has a single }`}},
		"each of them": {"{entity: '{', project: '{', group: '{', job_type: '{', display_name: '{', notes: '{', tags: ['{']}", []string{
			"entity: ", "project: ", "group: ", "job_type: ", "display_name: ", "notes: ", "tags::0: ",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := createDefaultConfig().(*Config)
			require.NoError(t, resolveNames(t, tt.yaml).Unmarshal(cfg))
			err := cfg.Validate()
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestWhatIsNoTextIsNoTemplate(t *testing.T) {
	for name, tt := range map[string]struct{ yaml, want string }{
		"a number": {"display_name: 12", "'display_name' expected type 'string', got unconvertible type 'int'"},
		"a list":   {"display_name: [a]", "'display_name' expected type 'string'"},
		// Braces without quotes are a mapping of YAML.
		"braces":           {"display_name: {host.name}", "'display_name' expected type 'string', got unconvertible type 'map"},
		"braces in a list": {"tags: [a, {b|c}]", "'tags[1]' expected type 'string', got unconvertible type 'map"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, resolveNames(t, tt.yaml).Unmarshal(createDefaultConfig()), tt.want)
		})
	}
}

// print-config marshals a configuration.
func TestAConfigurationIsWrittenBackAsItCame(t *testing.T) {
	const text = `
display_name: "{{x}} {host.name | 'it''s'}"
group: "0042"
notes: "${env:JOB}"
tags: ["{a|b}", "", "é\n"]
`
	cfg := createDefaultConfig().(*Config)
	require.NoError(t, resolveNames(t, text).Unmarshal(cfg))
	conf := confmap.New()
	require.NoError(t, conf.Marshal(cfg))
	assert.Equal(t, "{{x}} {host.name | 'it''s'}", conf.Get("display_name"))
	assert.Equal(t, "0042", conf.Get("group"))
	assert.Equal(t, "0042", conf.Get("notes"))
	assert.Equal(t, []any{"{a|b}", "", "é\n"}, conf.Get("tags"))

	want, err := cfg.names()
	require.NoError(t, err)
	for name, marshal := range map[string]func(any) ([]byte, error){"yaml": yaml.Marshal, "json": json.Marshal} {
		written, err := marshal(conf.ToStringMap())
		require.NoError(t, err, name)
		again := createDefaultConfig().(*Config)
		require.NoError(t, resolveNames(t, string(written)).Unmarshal(again), name)
		got, err := again.names()
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
}
