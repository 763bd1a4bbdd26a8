// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
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
		var first []string
		if filepath.Base(file) == "quickstart-wandb.yaml" { // is added to another one
			first = []string{"--config", repo(t, "config", "quickstart.yaml"), "--set=exporters.wandb_file.directory=wandb"}
		}
		for name, env := range map[string][]string{
			"without variables": nil,
			"with variables":    append(agentEnv("https://backend.example:4317"), "WANDBSYS_PID=1", "WANDBSYS_WANDB_DIR=/runs", "WANDBSYS_WANDB_RUNS=both"),
		} {
			t.Run(filepath.Base(file)+" "+name, func(t *testing.T) {
				stdout, stderr, code := run(t, env, slices.Concat([]string{"validate"}, first, []string{"--config", file})...)
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

func TestValidateAcceptsEverySourceOfAMD(t *testing.T) {
	for _, source := range []string{"auto", "sysfs", "amd-smi", "rocm-smi"} {
		stdout, stderr, code := run(t, nil, "validate", "--config=yaml:"+oneLine, "--config=yaml:receivers::wandbsys::scrapers: "+
			"{amd: {source: "+source+", amd_smi_path: /opt/rocm/bin/amd-smi, rocm_smi_path: /opt/rocm/bin/rocm-smi, tool_timeout: 1m}}")
		assert.Zero(t, code)
		assert.Empty(t, stdout+stderr)
	}
}

func TestValidateAcceptsEveryWayToNameAGPU(t *testing.T) {
	stdout, stderr, code := run(t, nil, "validate", "--config=yaml:"+oneLine, "--config=yaml:receivers::wandbsys: "+
		"{workloads: {discover: [gpu]}, scrapers: {nvidia: {device_ids: [0, GPU-1a2b-3c, 3b:00.0, 0000:5E:00], profiling: off}}}")
	assert.Zero(t, code)
	assert.Empty(t, stdout+stderr)
}

// refusal is a section of the receiver and what validate says of it.
type refusal struct{ section, want string }

// check runs validate. The error is compared to the letter.
func (r refusal) check(t *testing.T) {
	t.Helper()
	stdout, stderr, code := run(t, nil, "validate", "--config=yaml:"+oneLine, "--config=yaml:receivers::wandbsys: {"+r.section+"}")
	assert.Equal(t, 1, code)
	assert.Equal(t, r.want, strings.TrimSpace(stderr))
	assert.Empty(t, stdout)
}

// What cannot be read is refused before anything is checked.
func TestValidateRefusesWhatItCannotRead(t *testing.T) {
	const (
		following = "decoding failed due to the following error(s):\n\n"
		decoding  = "Error: failed to get config: cannot unmarshal the configuration: " + following +
			`'receivers' error reading configuration for "wandbsys": ` + following + "'' "
	)
	for name, tt := range map[string]refusal{
		"an unknown family": {
			"scrapers: {hots: }", "scrapers::hots: unknown family; the families are amd, apple, host, ipu, nvidia, openmetrics, tpu, trainium",
		},
		"a family that does not exist yet, among good ones": {
			"scrapers: {host: , nvidia: , npu: }", "scrapers::npu: unknown family; the families are amd, apple, host, ipu, nvidia, openmetrics, tpu, trainium",
		},
		"every family off": {
			"scrapers: {}", "scrapers: {} turns every family off; leave the key out to have all, or name some of amd, apple, host, ipu, nvidia, openmetrics, tpu, trainium",
		},
		"a list of families": {
			"scrapers: [host]",
			"scrapers: must be a map of families: unexpected sub-config value kind for key:scrapers value:[host] kind:slice",
		},
		"a word for families": {
			"scrapers: host",
			"scrapers: must be a map of families: unexpected sub-config value kind for key:scrapers value:host kind:string",
		},
		"a family that is true": {
			"scrapers: {host: true}",
			"scrapers::host: must be a map of settings: unexpected sub-config value kind for key:host value:true kind:bool",
		},
		"an unknown key": {
			"lable: x", following + "'wandbsysreceiver.Config' has invalid keys: lable",
		},
		"an unknown key of a family": {
			"scrapers: {host: {disk_path: [/]}}", "scrapers::host: " + following + "'host.Config' has invalid keys: disk_path",
		},
		"an unknown key of the GPUs": {
			"scrapers: {nvidia: {devices: [0]}}", "scrapers::nvidia: " + following + "'nvidia.Config' has invalid keys: devices",
		},
		"an unknown key of AMD's GPUs": {
			"scrapers: {amd: {amdsmi_path: /opt/rocm/bin/amd-smi}}", "scrapers::amd: " + following + "'amd.Config' has invalid keys: amdsmi_path",
		},
		"an unknown key of Trainium": {
			"scrapers: {trainium: {neuron_monitor: /opt/aws/neuron/bin/neuron-monitor}}",
			"scrapers::trainium: " + following + "'trainium.Config' has invalid keys: neuron_monitor",
		},
		"an unknown key of TPUs": {
			"scrapers: {tpu: {endpoint: localhost:8431}}", "scrapers::tpu: " + following + "'' " + following + "'tpu.Config' has invalid keys: endpoint",
		},
		"TPUs' endpoints that are no list": {
			"scrapers: {tpu: {endpoints: localhost:8431}}", "scrapers::tpu: " + following + "'' endpoints: must be a list of host:port, or of settings",
		},
		"an unknown key of workloads": {
			"workloads: {pid: self, tree: true}", following + "'workloads' has invalid keys: tree",
		},
		"an unknown key of a rule": {
			"workloads: {match: [{comm: python}]}", following + "'workloads.match[0]' has invalid keys: comm",
		},
		"a limit that is a word": {
			"workloads: {max_workloads: all}", following + "'workloads.max_workloads' expected type 'int', got unconvertible type 'string'",
		},
		"an unknown metric": {
			"metrics: {gpu.temprature: {enabled: true}}", following + "'metrics' has invalid keys: gpu.temprature",
		},
		"an interval without a unit, in quotes": {
			`collection_interval: "10"`, following + "'collection_interval' time: missing unit in duration",
		},
		"an interval that is none": {
			"collection_interval: soon", following + "'collection_interval' time: invalid duration",
		},
		"a list of workloads": {
			"workloads: [self]", following + `'workloads' expected a map or struct, got "slice"`,
		},
		"a tree that is a word": {
			"workloads: {pid: self, track_process_tree: deep}",
			following + "'workloads.track_process_tree' expected type 'bool', got unconvertible type 'string'",
		},
		"a number that is a word": {
			"scrapers: {host: {max_series: many}}",
			"scrapers::host: " + following + "'max_series' expected type 'int', got unconvertible type 'string'",
		},
		"several mistakes, all at once": {
			"lable: x, extended: maybe, scrapers: {hots: , host: {disk_path: [/]}}",
			following + "'extended' expected type 'bool', got unconvertible type 'string'\n" +
				"'wandbsysreceiver.Config' has invalid keys: lable\n" +
				"scrapers::host: " + following + "'host.Config' has invalid keys: disk_path\n" +
				"scrapers::hots: unknown family; the families are amd, apple, host, ipu, nvidia, openmetrics, tpu, trainium",
		},
	} {
		t.Run(name, refusal{tt.section, decoding + tt.want}.check)
	}
}

func TestValidateRefuses(t *testing.T) {
	const (
		receiver = "Error: receivers::wandbsys: "
		below    = "Error: receivers::wandbsys::"
		noPid    = `: must be a process id, or "self" for the collector itself`
	)
	for name, tt := range map[string]refusal{
		"a naming that is not there yet": {
			"naming: semconv", below + "naming: semconv is not available yet; use template, tag or sdk",
		},
		"a naming that never will be": {
			"naming: prometheus", below + `naming: unknown value "prometheus"; use template, tag or sdk`,
		},
		"a negative interval": {"collection_interval: -5s", receiver + "collection_interval: -5s: must be 100ms at least"},
		"an interval of zero": {"collection_interval: 0s", receiver + "collection_interval: 0s: must be 100ms at least"},
		"an interval too short": {
			"scrapers: {host: {collection_interval: 1ms}}", receiver + "scrapers::host: collection_interval: 1ms: must be 100ms at least",
		},
		// A bare number is nanoseconds to the decoder.
		"an interval without a unit": {"collection_interval: 10", receiver + "collection_interval: 10ns: must be 100ms at least"},
		"a timeout longer than the interval": {
			"collection_interval: 5s, timeout: 6s", receiver + "timeout: 6s: must not be longer than collection_interval (5s)",
		},
		"a timeout of zero": {
			"timeout: 0s", receiver + "timeout: 0s: must be above 0, since a source may never answer",
		},
		"a family's timeout of zero": {
			"scrapers: {host: {timeout: 0s}}", receiver + "scrapers::host: timeout: 0s: must be above 0, since a source may never answer",
		},
		"a negative delay": {"initial_delay: -1s", receiver + "initial_delay: -1s: must not be negative"},
		"no detection":     {"detection_interval: 0s", receiver + "detection_interval: 0s: must be above 0"},
		"a relative root path": {
			"root_path: hostfs", receiver + `root_path: "hostfs": must be absolute`,
		},
		"a root path that is not there": {
			"root_path: /no/such/folder",
			receiver + "root_path: stat /no/such/folder: no such file or directory; mount the machine's / there",
		},
		"a root path that is no folder": {
			"root_path: /dev/null", receiver + `root_path: "/dev/null": is not a directory`,
		},
		"a label of two lines": {`label: "a\nb"`, receiver + `label: "a\nb": must be one line`},
		"a pid that is not there": {
			"workloads: {pid: 999999999}",
			receiver + `workloads: pid: there is no process 999999999 below /proc; name one that runs, by its pid there, or "self" for the collector itself`,
		},
		"a negative pid":       {"workloads: {pid: -1}", below + "workloads: pid: -1" + noPid},
		"a pid that is a word": {"workloads: {pid: me}", below + "workloads: pid: me" + noPid},
		"a pid with a point":   {"workloads: {pid: 1.5}", below + "workloads: pid: 1.5" + noPid},
		"a number and self":    {"workloads: {pid: [1, self]}", below + "workloads: pid: [1 self]" + noPid},
		"something unknown to discover": {
			"workloads: {discover: [wandb, docker]}",
			below + `workloads: discover::1: unknown value "docker"; use wandb, slurm, kubernetes or gpu`,
		},
		"holders of accelerators, which no family tells": {
			"workloads: {discover: [gpu]}, scrapers: {host: }",
			receiver + "workloads: discover: gpu: no family that is on tells which processes hold an accelerator",
		},
		"a rule that matches all": {
			"workloads: {match: [{}]}",
			below + "workloads::match::0: a rule without any of name, exe, command and user would match every process",
		},
		"a rule with a bad expression": {
			`workloads: {match: [{name: "python("}]}`,
			below + "workloads::match::0: name: error parsing regexp: missing closing ): `python(`",
		},
		"no workloads": {"workloads: {max_workloads: 0}", below + "workloads: max_workloads: 0: must be above 0"},
		"no processes": {"workloads: {max_processes: 0}", below + "workloads: max_processes: 0: must be above 0"},
		"a kubelet without an address": {
			"workloads: {kubernetes: {kubelet: }}",
			below + "workloads::kubernetes::kubelet: endpoint: must be set to https://NODE:10250, or the environment variable NODE_NAME to the node's name (spec.nodeName)",
		},
		"a relative disk path": {
			"scrapers: {host: {disk_paths: [data]}}", below + `scrapers::host: disk_paths: "data": must be absolute`,
		},
		"a disk path listed twice": {
			"scrapers: {host: {disk_paths: [/, /data, /data]}}", below + `scrapers::host: disk_paths: "/data": is listed twice`,
		},
		"an empty disk path": {
			`scrapers: {host: {disk_paths: [""]}}`, below + `scrapers::host: disk_paths: "": must be absolute`,
		},
		"an expression for interfaces that is none": {
			`scrapers: {host: {network: {include: ["eth("]}}}`,
			below + "scrapers::host::network: include: \"eth(\": error parsing regexp: missing closing ): `eth(`",
		},
		"a shell's pattern for interfaces": {
			`scrapers: {host: {network: {exclude: ["*"]}}}`,
			below + "scrapers::host::network: exclude: \"*\": error parsing regexp: missing argument to repetition operator: `*`",
		},
		"no series": {"scrapers: {host: {max_series: 0}}", receiver + "scrapers::host::max_series: 0: must be above 0"},
		"an unknown denominator": {
			"scrapers: {host: {cpu_denominator: cores}}",
			below + `scrapers::host::cpu_denominator: unknown value "cores"; use available, logical or physical`,
		},
		"an unknown kind of memory": {
			"scrapers: {host: {cgroup_memory: rss}}",
			below + `scrapers::host::cgroup_memory: unknown value "rss"; use working_set, usage or anon`,
		},
		"resources that cannot be told apart": {
			"resource_attributes: {service.instance.id: {enabled: false}}",
			receiver + "resource_attributes::service.instance.id: cannot be switched off, since exporters would merge the resources",
		},
		"a library below where the collector happens to run": {
			"scrapers: {nvidia: {library_path: libnvidia-ml.so.1}}",
			below + `scrapers::nvidia: library_path: "libnvidia-ml.so.1": must be absolute`,
		},
		"a GPU that is no number, UUID or address": {
			"scrapers: {nvidia: {device_ids: [0, GPU-1a2b, 3b:00.0, gpu1]}}",
			below + `scrapers::nvidia: device_ids::3: "gpu1": must be an NVML index, a UUID (GPU-...) or a PCI bus id (0000:3b:00.0)`,
		},
		"a GPU listed twice": {
			"scrapers: {nvidia: {device_ids: [3b:00.0, 00000000:3B:00.0]}}",
			below + `scrapers::nvidia: device_ids::1: "00000000:3B:00.0": is listed twice`,
		},
		"an unknown profiling": {
			"scrapers: {nvidia: {profiling: always}}",
			below + `scrapers::nvidia::profiling: unknown value "always"; use auto or off`,
		},
		"an unknown source of AMD's GPUs": {
			"scrapers: {amd: {source: rocm_smi}}",
			below + `scrapers::amd::source: unknown value "rocm_smi"; use auto, sysfs, amd-smi or rocm-smi`,
		},
		"a tool below where the collector happens to run": {
			"scrapers: {amd: {source: rocm-smi, rocm_smi_path: rocm-smi}}",
			below + `scrapers::amd: rocm_smi_path: "rocm-smi": must be absolute`,
		},
		"a tool with less than no time": {
			"scrapers: {amd: {source: amd-smi, tool_timeout: -1s}}", below + "scrapers::amd: tool_timeout: -1s: must not be below 0",
		},
		"neuron-monitor below where the collector happens to run": {
			"scrapers: {trainium: {neuron_monitor_path: neuron-monitor}}",
			below + `scrapers::trainium: neuron_monitor_path: "neuron-monitor": must be absolute`,
		},
		"an expression for tags that is none": {
			`scrapers: {trainium: {tag_filter: "train("}}`,
			below + "scrapers::trainium: tag_filter: error parsing regexp: missing closing ): `train(`",
		},
		"an exporter of Neuron that is slower than a scrape": {
			"timeout: 2s, scrapers: {trainium: {prometheus: {timeout: 3s}}}",
			below + "scrapers::trainium: prometheus: timeout: 3s: must not be longer than the family's timeout (2s)",
		},
		"a filter that the exporter of Neuron does not know": {
			"scrapers: {trainium: {tag_filter: train, prometheus: }}",
			below + "scrapers::trainium: tag_filter: has no effect with prometheus: set it in the configuration of that neuron-monitor",
		},
		"a TPU's endpoint without a port": {
			"scrapers: {tpu: {endpoints: [localhost]}}", below + "scrapers::tpu::endpoints::0::clientconfig: address localhost: missing port in address",
		},
		"a TPU's endpoint without a host": {
			"scrapers: {tpu: {endpoints: [':8431']}}", below + `scrapers::tpu: endpoints::0: ":8431": must be host:port`,
		},
		"a TPU's endpoint listed twice": {
			"scrapers: {tpu: {endpoints: ['localhost:8431', 'localhost:8431']}}",
			below + `scrapers::tpu: endpoints::1: "localhost:8431": is listed twice`,
		},
		"an unknown form of distributions": {
			"scrapers: {tpu: {distributions: percentiles}}",
			below + `scrapers::tpu::distributions: unknown value "percentiles"; use quantiles, histogram or both`,
		},
		"an unknown window of distributions": {
			"scrapers: {tpu: {distribution_window: scrape}}",
			below + `scrapers::tpu::distribution_window: unknown value "scrape"; use job or interval`,
		},
		"libtpu too often": {
			"scrapers: {tpu: {sdk: {enabled: true, interval: 3s}}}",
			below + "scrapers::tpu: sdk::interval: 3s: must be at least 10s, for the sake of the TPU's control agent",
		},
		"libtpu below where the collector happens to run": {
			"scrapers: {tpu: {sdk: {enabled: true, library_path: libtpu.so}}}",
			below + `scrapers::tpu: sdk::library_path: "libtpu.so": must be absolute`,
		},
		"several mistakes, all at once": {
			"timeout: 1m, detection_interval: 0s, workloads: {pid: 999999999}, scrapers: {host: {cpu_denominator: cores, disk_paths: [data]}}",
			receiver + `workloads: pid: there is no process 999999999 below /proc; name one that runs, by its pid there, or "self" for the collector itself` + "\n" +
				"detection_interval: 0s: must be above 0\n" +
				"timeout: 1m0s: must not be longer than collection_interval (15s)\n" +
				below[len("Error: "):] + "scrapers::host: disk_paths: \"data\": must be absolute\n" +
				below[len("Error: "):] + `scrapers::host::cpu_denominator: unknown value "cores"; use available, logical or physical`,
		},
	} {
		t.Run(name, tt.check)
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
	assert.Equal(t, []string{"debug", "file", "otlp_grpc", "otlp_http", "prometheus", "wandb_file"}, componentNames(got.Exporters))
	assert.Equal(t, []string{"basicauth", "bearertokenauth", "health_check"}, componentNames(got.Extensions))
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
  wandb_file: {directory: wandb}
  debug:
extensions:
  health_check: {endpoint: localhost:0}
  bearertokenauth: {token: t}
  basicauth: {client_auth: {username: u, password: p}}
service:
  extensions: [health_check, bearertokenauth, basicauth]
  pipelines:
    metrics:
      receivers: [wandbsys, otlp]
      processors: [memory_limiter, resource, filter, transform, cumulative_to_delta, batch]
      exporters: [otlp_grpc, otlp_http, prometheus, file, wandb_file, debug]
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

// What print-config prints means the same when it is read.
func TestAPrintedConfigurationReadsTheSame(t *testing.T) {
	config := settings{
		receivers: "wandbsys: {workloads: {discover: [], match: [{name: python}], max_workloads: 7, " +
			"kubernetes: {kubelet: {endpoint: 'https://node-7:10250'}}}}",
		exporters: "file: {path: out.json}",
	}.write(t)
	first, stderr, code := run(t, nil, "print-config", "--config", config)
	require.Zero(t, code, stderr)
	file := filepath.Join(t.TempDir(), "printed.yaml")
	require.NoError(t, os.WriteFile(file, []byte(first), 0o600))
	second, stderr, code := run(t, nil, "print-config", "--config", file)
	require.Zero(t, code, stderr)
	receivers := parseYAML(t, first)["receivers"] // of other components it is not true
	assert.Equal(t, receivers, parseYAML(t, second)["receivers"])
	workloads := receivers.(map[string]any)["wandbsys"].(map[string]any)["workloads"].(map[string]any)
	assert.Empty(t, workloads["discover"])
	kubelet := workloads["kubernetes"].(map[string]any)["kubelet"]
	assert.NotContains(t, kubelet, "keepalive", "which is off")
}
