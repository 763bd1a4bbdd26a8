// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// oneLine is the shortest configuration there is.
const oneLine = `
receivers: {wandbsys: }
exporters: {debug: }
service: {pipelines: {metrics: {receivers: [wandbsys], exporters: [debug]}}}
`

// agentEnv is the environment that config/agent.yaml speaks of.
func agentEnv(endpoint string) []string {
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint,
		"OTLP_HEADER_AUTHORIZATION=Bearer e2e: a #token",
		"OTEL_METRIC_EXPORT_INTERVAL=1000",
		"WANDBSYS_LABEL=rank-3",
		"WANDBSYS_ROOT_PATH=/",
		"NODE_NAME=node-7",
	}
}

func TestValidateAcceptsTheFilesOfConfig(t *testing.T) {
	files, err := filepath.Glob(repo(t, "config", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		for name, env := range map[string][]string{
			"without variables": nil,
			"with variables":    append(agentEnv("https://backend.example:4317"), "WANDBSYS_PID=1"),
		} {
			t.Run(filepath.Base(file)+" "+name, func(t *testing.T) {
				stdout, stderr, code := run(t, env, "validate", "--config", file)
				assert.Zero(t, code)
				assert.Empty(t, stdout+stderr)
			})
		}
	}
}

func TestValidateAcceptsOneLine(t *testing.T) {
	stdout, stderr, code := run(t, nil, "validate", "--config=yaml:"+oneLine)
	assert.Zero(t, code)
	assert.Empty(t, stdout+stderr)
}

func TestValidateRefuses(t *testing.T) {
	const decoding = `Error: failed to get config: cannot unmarshal the configuration: decoding failed due to the following error(s):

'receivers' error reading configuration for "wandbsys": decoding failed due to the following error(s):

`
	for name, tt := range map[string]struct{ section, want string }{
		"an unknown family": {
			"scrapers: {hots: }",
			decoding + "'' scrapers::hots: unknown family; the families are host",
		},
		"a family that does not exist yet, among good ones": {
			"scrapers: {host: , nvidia: }",
			decoding + "'' scrapers::nvidia: unknown family; the families are host",
		},
		"every family off": {
			"scrapers: {}",
			decoding + "'' scrapers: {} turns every family off; leave the key out to have all, or name some of host",
		},
		"an unknown key": {
			"lable: x",
			decoding + "'' decoding failed due to the following error(s):\n\n'wandbsysreceiver.Config' has invalid keys: lable",
		},
		"a naming that is not there yet": {
			"naming: semconv",
			"Error: receivers::wandbsys::naming: semconv is not available yet; use template, tag or sdk",
		},
		"a naming that never will be": {
			"naming: prometheus",
			`Error: receivers::wandbsys::naming: unknown value "prometheus"; use template, tag or sdk`,
		},
		"a relative root path": {
			"root_path: hostfs",
			`Error: receivers::wandbsys: root_path: "hostfs": must be absolute`,
		},
		"several mistakes, all at once": {
			"timeout: 1m, detection_interval: 0s",
			"Error: receivers::wandbsys: detection_interval: 0s: must be above 0\n" +
				"timeout: 1m0s: must not be longer than collection_interval (15s)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, stderr, code := run(t, nil, "validate", "--config=yaml:"+oneLine, "--config=yaml:receivers::wandbsys: {"+tt.section+"}")
			assert.Equal(t, 1, code)
			assert.Equal(t, tt.want, strings.TrimSpace(stderr))
		})
	}
}

// A configuration that is refused does not start the collector either.
func TestRunRefusesABadConfiguration(t *testing.T) {
	_, stderr, code := run(t, nil, "--config=yaml:"+oneLine, "--config=yaml:receivers::wandbsys::naming: semconv")
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "receivers::wandbsys::naming: semconv is not available yet; use template, tag or sdk")
}

// components is what the command of that name prints.
type components struct {
	Receivers, Processors, Exporters, Extensions, Connectors []struct{ Name string }
	Providers                                                []struct{ Scheme string }
}

func TestComponentsAreThoseOfTheManifest(t *testing.T) {
	stdout, _, code := run(t, nil, "components")
	require.Zero(t, code)
	var got components
	require.NoError(t, yaml.Unmarshal([]byte(stdout), &got))
	assert.Equal(t, []string{"otlp", "wandbsys"}, componentNames(got.Receivers))
	assert.Equal(t, []string{"batch", "cumulative_to_delta", "filter", "memory_limiter", "resource", "transform"}, componentNames(got.Processors))
	assert.Equal(t, []string{"debug", "file", "otlp_grpc", "otlp_http", "prometheus"}, componentNames(got.Exporters))
	assert.Equal(t, []string{"health_check"}, componentNames(got.Extensions))
	assert.Empty(t, got.Connectors)
	var schemes []string
	for _, p := range got.Providers {
		schemes = append(schemes, p.Scheme)
	}
	assert.Equal(t, []string{"env", "file", "http", "yaml"}, schemes)
}

func componentNames(list []struct{ Name string }) []string {
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names
}

// Every component can be configured under the name that `components` shows.
func TestEveryComponentTakesItsPlace(t *testing.T) {
	const everything = `
receivers: {wandbsys: , otlp: {protocols: {grpc: {endpoint: localhost:0}}}}
processors:
  memory_limiter: {check_interval: 1s, limit_mib: 100}
  batch:
  resource: {attributes: [{key: k, value: v, action: upsert}]}
  filter: {metrics: {metric: ['name == "cpu"']}}
  transform: {metric_statements: [{context: metric, statements: ['set(description, "")']}]}
  cumulative_to_delta:
exporters:
  otlp_grpc: {endpoint: localhost:1}
  otlp_http: {endpoint: http://localhost:1}
  prometheus: {endpoint: localhost:0}
  file: {path: out.json}
  debug:
extensions: {health_check: {endpoint: localhost:0}}
service:
  extensions: [health_check]
  pipelines:
    metrics:
      receivers: [wandbsys, otlp]
      processors: [memory_limiter, resource, filter, transform, cumulative_to_delta, batch]
      exporters: [otlp_grpc, otlp_http, prometheus, file, debug]
  telemetry: {metrics: {level: none}}
`
	p := startProcess(t, collector(t, nil, "--config=yaml:"+everything))
	p.waitFor("the collector is ready", func() bool { return strings.Contains(p.stderr.String(), "Everything is ready") })
	p.stop()
	assert.Zero(t, p.exitCode())
}

// print-config shows what became of the values.
func TestConfigurationComesFromEveryProvider(t *testing.T) {
	file := filepath.Join(t.TempDir(), "base.yaml")
	require.NoError(t, os.WriteFile(file, []byte(oneLine), 0o600))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("receivers: {wandbsys: {host_name: '${env:E2E_HOST:-none}', label: '${E2E_LABEL}'}}"))
	}))
	defer server.Close()
	const whole = "E2E_CONFIG=receivers: {wandbsys: {detection_interval: 7m}}"
	stdout, stderr, code := run(t, []string{"E2E_HOST=from-env", "E2E_LABEL=no-scheme", whole}, "print-config",
		"--config", file, "--config="+server.URL, "--config=env:E2E_CONFIG",
		"--config=yaml:receivers::wandbsys::collection_interval: 20s", "--set=receivers.wandbsys.timeout=3s")
	require.Zero(t, code, stderr)
	var got struct{ Receivers map[string]map[string]any }
	require.NoError(t, yaml.Unmarshal([]byte(stdout), &got))
	section := got.Receivers["wandbsys"]
	assert.Equal(t, "from-env", section["host_name"])
	assert.Equal(t, "no-scheme", section["label"])
	assert.Equal(t, "7m0s", section["detection_interval"])
	assert.Equal(t, "20s", section["collection_interval"])
	assert.Equal(t, "3s", section["timeout"])
}
