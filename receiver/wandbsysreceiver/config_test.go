// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsysreceiver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/kubelet"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/host"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics"
)

// decoding is what confmap writes above the errors of a section.
const decoding = "decoding failed due to the following error(s):\n\n"

func TestDefaultConfig(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	require.NoError(t, componenttest.CheckConfigStruct(cfg))
	require.NoError(t, confmap.Validate(cfg))
	cfg.families = nil // functions are not comparable
	require.Equal(t, &Config{
		Timing: scrapers.Timing{
			CollectionInterval: 15 * time.Second,
			InitialDelay:       time.Second,
			Timeout:            10 * time.Second,
		},
		MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		Naming:               naming.Template,
		DetectionInterval:    5 * time.Minute,
		Workloads: WorkloadsConfig{
			TrackProcessTree: true,
			Discover:         []string{"wandb", "slurm", "kubernetes"},
			MaxWorkloads:     500,
			MaxProcesses:     20_000,
			Kubernetes:       kubelet.NewDefaultConfig(),
		},
	}, cfg)
}

func TestDefaultConfigIsFresh(t *testing.T) {
	first := createDefaultConfig().(*Config)
	require.NoError(t, confmap.NewFromStringMap(map[string]any{
		"label":    "other",
		"metrics":  map[string]any{"cpu": map[string]any{"enabled": false}},
		"scrapers": map[string]any{"host": nil},
	}).Unmarshal(first))
	first.families[0].Name = "renamed"
	second := createDefaultConfig().(*Config)
	assert.Empty(t, second.Label)
	assert.True(t, second.MetricsBuilderConfig.Metrics.CPU.Enabled)
	assert.Nil(t, second.Scrapers)
	assert.Equal(t, "host", second.families[0].Name)
}

// section returns one receiver of testdata/config.yaml.
func section(t *testing.T, name string) *confmap.Conf {
	t.Helper()
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	id := component.NewIDWithName(metadata.Type, name).String()
	require.Contains(t, conf.ToStringMap(), id)
	sub, err := conf.Sub(id)
	require.NoError(t, err)
	return sub
}

func decode(t *testing.T, conf *confmap.Conf) *Config {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	require.NoError(t, conf.Unmarshal(cfg))
	require.NoError(t, confmap.Validate(cfg))
	return cfg
}

// hostSection is the host family's section with the given times.
func hostSection(interval, delay, timeout time.Duration) map[string]scrapers.Config {
	return map[string]scrapers.Config{"host": &host.Config{
		CommonConfig: scrapers.CommonConfig{
			Timing:    scrapers.Timing{CollectionInterval: interval, InitialDelay: delay, Timeout: timeout},
			MaxSeries: scrapers.DefaultMaxSeries,
		},
		DiskPaths:      []string{"/"},
		CPUDenominator: "available",
		CgroupMemory:   cgroup.WorkingSet,
	}}
}

// allWorkloadKeys is what testdata/config.yaml gives for every key of workloads.
func allWorkloadKeys() WorkloadsConfig {
	w := WorkloadsConfig{
		Pid:      "self",
		Discover: []string{"slurm", "wandb"},
		Match: []MatchConfig{
			{Name: "^python3?$", Exe: "/venv/", Command: `train\.py`, User: "^alice$"},
			{Command: "ollama"},
		},
		MaxWorkloads: 40,
		MaxProcesses: 4000,
		Kubernetes:   kubelet.NewDefaultConfig(),
	}
	list := w.Kubernetes.Kubelet.GetOrInsertDefault()
	list.HTTP.Endpoint, list.TokenFile, list.HTTP.Timeout = "https://node-7:10250", "/run/token", time.Second
	list.HTTP.TLS.CAFile = "/run/ca.crt"
	resources := w.Kubernetes.PodResources.GetOrInsertDefault()
	resources.Endpoint, resources.Timeout = "unix:///run/pods.sock", 3*time.Second
	return w
}

func TestConfigAccepted(t *testing.T) {
	defaultHost := hostSection(15*time.Second, time.Second, 10*time.Second)
	for name, want := range map[string]func(*Config){
		"":              nil,
		"empty":         nil,
		"scrapers_null": nil,
		"all_keys": func(c *Config) {
			c.Timing = scrapers.Timing{CollectionInterval: 30 * time.Second, InitialDelay: time.Second, Timeout: 20 * time.Second}
			c.delaySet = map[string]bool{"": true, "host": false}
			c.Naming, c.Label, c.HostName = naming.SDK, "node-a", "trainer-7"
			c.DetectionInterval = time.Minute
			c.Workloads = allWorkloadKeys()
			c.Scrapers = hostSection(30*time.Second, time.Second, 20*time.Second)
			section := c.Scrapers["host"].(*host.Config)
			section.DiskPaths, section.CommonConfig.MaxSeries = []string{"/", "/data"}, 500
			section.CPUDenominator, section.CgroupMemory = "physical", cgroup.Anon
			section.Network = host.NetworkConfig{Include: []string{`eth\d+`}, Exclude: []string{"eth9"}}
		},
		"family_null": func(c *Config) {
			c.Scrapers, c.delaySet = defaultHost, map[string]bool{"": false, "host": false}
		},
		"family_empty": func(c *Config) {
			c.Scrapers, c.delaySet = defaultHost, map[string]bool{"": false, "host": false}
		},
		"timeout_clamped": func(c *Config) {
			c.Timing.CollectionInterval, c.Timing.Timeout = 5*time.Second, 5*time.Second
		},
		"delay_default_by_hand": func(c *Config) { c.delaySet = map[string]bool{"": true} },
		"delay_zero": func(c *Config) {
			c.Timing.InitialDelay, c.delaySet = 0, map[string]bool{"": true}
		},
		"family_inherits": func(c *Config) {
			c.Timing = scrapers.Timing{CollectionInterval: 40 * time.Second, InitialDelay: 3 * time.Second, Timeout: 30 * time.Second}
			c.Scrapers = hostSection(40*time.Second, 3*time.Second, 30*time.Second)
			c.delaySet = map[string]bool{"": true, "host": false}
		},
		"family_overrides": func(c *Config) {
			c.Timing = scrapers.Timing{CollectionInterval: 40 * time.Second, InitialDelay: 3 * time.Second, Timeout: 30 * time.Second}
			c.Scrapers = hostSection(50*time.Second, 0, 45*time.Second)
			c.delaySet = map[string]bool{"": true, "host": true}
		},
		"family_timeout_clamped": func(c *Config) {
			c.Scrapers = hostSection(4*time.Second, time.Second, 4*time.Second)
			c.delaySet = map[string]bool{"": false, "host": false}
		},
		"family_timeout_clamped_from_explicit": func(c *Config) {
			c.Timing.CollectionInterval, c.Timing.Timeout = 40*time.Second, 30*time.Second
			c.Scrapers = hostSection(4*time.Second, time.Second, 4*time.Second)
			c.delaySet = map[string]bool{"": false, "host": false}
		},
		"family_timeout_inherited_clamp": func(c *Config) {
			c.Timing.CollectionInterval, c.Timing.Timeout = 4*time.Second, 4*time.Second
			c.Scrapers = hostSection(4*time.Second, time.Second, 4*time.Second)
			c.delaySet = map[string]bool{"": false, "host": false}
		},
		"detection":  func(c *Config) { c.DetectionInterval = 90 * time.Second },
		"naming_tag": func(c *Config) { c.Naming = naming.Tag },
		"pid_zero":   func(c *Config) { c.Workloads.Pid = 0 },
		"pid_null":   nil,
		"pid_number": func(c *Config) { c.Workloads.Pid = 1 },
		"pid_number_in_quotes": func(c *Config) {
			c.Workloads.Pid = "1"
		},
		"pid_self":         func(c *Config) { c.Workloads.Pid = "self" },
		"tree_off":         func(c *Config) { c.Workloads.Pid, c.Workloads.TrackProcessTree = "self", false },
		"tree_on":          func(c *Config) { c.Workloads.Pid = "self" },
		"discover_default": nil,
		"discover_none":    func(c *Config) { c.Workloads.Discover = []string{} },
		"discover_one":     func(c *Config) { c.Workloads.Discover = []string{"kubernetes"} },
		"discover_word":    func(c *Config) { c.Workloads.Discover = []string{"wandb"} },
		"match_one":        func(c *Config) { c.Workloads.Match = []MatchConfig{{User: "1000"}} },
		"match_none":       func(c *Config) { c.Workloads.Match = []MatchConfig{} },
		"kubernetes_null":  nil,
		"kubelet_on": func(c *Config) {
			c.Workloads.Kubernetes.Kubelet.GetOrInsertDefault().HTTP.Endpoint = "https://node-7:10250"
		},
		"pod_resources_on": func(c *Config) { c.Workloads.Kubernetes.PodResources.GetOrInsertDefault() },
		"disk_none": func(c *Config) {
			c.Scrapers, c.delaySet = hostSection(15*time.Second, time.Second, 10*time.Second), map[string]bool{"": false, "host": false}
			c.Scrapers["host"].(*host.Config).DiskPaths = []string{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := decode(t, section(t, name))
			if name == "all_keys" {
				assert.False(t, got.MetricsBuilderConfig.Metrics.CPU.Enabled)
				assert.False(t, got.MetricsBuilderConfig.ResourceAttributes.OsType.Enabled)
				got.MetricsBuilderConfig = metadata.NewDefaultMetricsBuilderConfig()
			}
			expected := createDefaultConfig().(*Config)
			expected.delaySet = map[string]bool{"": false}
			if want != nil {
				want(expected)
			}
			got.families, expected.families = nil, nil
			require.Equal(t, expected, got)
		})
	}
}

func TestConfigRefusedWhenDecoding(t *testing.T) {
	unknownFamily := "'' scrapers::%: unknown family; the families are amd, apple, host, ipu, nvidia, openmetrics, tpu, trainium"
	for name, want := range map[string]string{
		"scrapers_none":                    "'' scrapers: {} turns every family off; leave the key out to have all, or name some of amd, apple, host, ipu, nvidia, openmetrics, tpu, trainium",
		"scrapers_list":                    "'' scrapers: must be a map of families: unexpected sub-config value kind for key:scrapers value:[host] kind:slice",
		"scrapers_word":                    "'' scrapers: must be a map of families: unexpected sub-config value kind for key:scrapers value:host kind:string",
		"family_wrong_type":                "'' scrapers::host: must be a map of settings: unexpected sub-config value kind for key:host value:true kind:bool",
		"family_unknown":                   strings.Replace(unknownFamily, "%", "hots", 1),
		"family_not_yet":                   strings.Replace(unknownFamily, "%", "npu", 1),
		"family_unknown_key":               "'' scrapers::host: " + decoding + "'host.Config' has invalid keys: disk_path",
		"family_wrong_value":               "'' scrapers::host: " + decoding + "'max_series' expected type 'int', got unconvertible type 'string'",
		"unknown_key":                      "'' " + decoding + "'wandbsysreceiver.Config' has invalid keys: colection_interval",
		"unknown_key_beside_scrapers":      "'' " + decoding + "'wandbsysreceiver.Config' has invalid keys: colection_interval",
		"wrong_duration":                   "'' " + decoding + "'collection_interval' time: invalid duration",
		"wrong_bool":                       "'' " + decoding + "'extended' expected type 'bool', got unconvertible type 'string'",
		"wrong_workloads":                  "'' " + decoding + "'workloads' expected a map or struct, got \"slice\"",
		"unknown_metric":                   "'' " + decoding + "'metrics' has invalid keys: gpu.temprature",
		"discover_map":                     "'' " + decoding + "'workloads.discover' source data must be an array or slice, got map",
		"match_map":                        "'' " + decoding + "'workloads.match' source data must be an array or slice, got map",
		"match_text":                       "'' " + decoding + "'workloads.match[0]' expected a map or struct, got \"string\"",
		"match_unknown_key":                "'' " + decoding + "'workloads.match[0]' has invalid keys: pid",
		"max_workloads_word":               "'' " + decoding + "'workloads.max_workloads' expected type 'int', got unconvertible type 'string'",
		"kubernetes_word":                  "'' " + decoding + "'workloads.kubernetes' expected a map or struct, got \"bool\"",
		"kubernetes_unknown_key":           "'' " + decoding + "'workloads.kubernetes' has invalid keys: api",
		"kubelet_unknown_key":              "'' " + decoding + "'workloads.kubernetes.kubelet' " + decoding + "'kubelet.PodListConfig' has invalid keys: endpont",
		"tree_word":                        "'' " + decoding + "'workloads.track_process_tree' expected type 'bool', got unconvertible type 'string'",
		"tree_number":                      "'' " + decoding + "'workloads.track_process_tree' expected type 'bool', got unconvertible type 'int'",
		"denominator_number":               "'' scrapers::host: " + decoding + "'cpu_denominator' expected type 'host.cpuDenominator', got unconvertible type 'int'",
		"cgroup_memory_list":               "'' scrapers::host: " + decoding + "'cgroup_memory' expected type 'cgroup.MemoryUse', got unconvertible type '[]interface {}'",
		"openmetrics_unknown_key":          "'' scrapers::openmetrics: " + decoding + "'' " + decoding + "'openmetrics.Config' has invalid keys: endpoint",
		"openmetrics_endpoint_unknown_key": "'' scrapers::openmetrics: " + decoding + "'' endpoints::dcgm: " + decoding + "'openmetrics.EndpointConfig' has invalid keys: url",
		"openmetrics_endpoint_wrong_value": "'' scrapers::openmetrics: " + decoding + "'' endpoints::dcgm: " + decoding + "'max_series' expected type 'int', got unconvertible type 'string'",
		"openmetrics_endpoints_list":       "'' scrapers::openmetrics: " + decoding + "'' endpoints: must be a map of names to URLs, or to settings",
		"openmetrics_endpoint_number":      "'' scrapers::openmetrics: " + decoding + "'' endpoints::dcgm: must be a URL, or a map of settings",
		"decode_errors": "'' " + decoding + "'extended' expected type 'bool', got unconvertible type 'string'\n" +
			"'wandbsysreceiver.Config' has invalid keys: colection_interval\n" +
			"scrapers::host: " + decoding + "'host.Config' has invalid keys: disk_path\n" +
			"scrapers::hots: unknown family; the families are amd, apple, host, ipu, nvidia, openmetrics, tpu, trainium",
	} {
		t.Run(name, func(t *testing.T) {
			require.EqualError(t, section(t, name).Unmarshal(createDefaultConfig()), decoding+want)
		})
	}
}

func TestConfigRefusedWhenValidating(t *testing.T) {
	const (
		noTimeout = "timeout: 0s: must be above 0, since a source may never answer"
		styles    = "; use template, tag or sdk"
		noPid     = `: must be a process id, or "self" for the collector itself`
		kinds     = "; use wandb, slurm, kubernetes or gpu"
		noHolders = "workloads: discover: gpu: no family that is on tells which processes hold an accelerator"
		noRule    = "a rule without any of name, exe, command and user would match every process"

		noKubeletTimeout = "timeout: 0s: must be above 0, since the kubelet may never answer"
	)
	noEndpoint := func(endpoint string) string {
		return fmt.Sprintf("endpoint: %q: must be https://NODE:10250, or http://NODE:10255 for the read-only port", endpoint)
	}
	noSocket := func(endpoint string) string {
		return fmt.Sprintf("endpoint: %q: must be a socket as unix:///var/lib/kubelet/pod-resources/kubelet.sock", endpoint)
	}
	t.Setenv("NODE_NAME", "")
	for name, want := range map[string]string{
		// The path is confmap's, which knows no name for a squashed field.
		"interval_negative":          "collection_interval: -1s: must be 100ms at least",
		"interval_zero":              "collection_interval: 0s: must be 100ms at least",
		"timeout_negative":           "timeout: -1s: must be above 0, since a source may never answer",
		"family_interval_zero":       "scrapers::host: collection_interval: 0s: must be 100ms at least",
		"timeout_long":               "timeout: 6s: must not be longer than collection_interval (5s)",
		"interval_below_100ms":       "collection_interval: 100ns: must be 100ms at least",
		"no_instance_id":             "resource_attributes::service.instance.id: cannot be switched off, since exporters would merge the resources",
		"no_service_name":            "resource_attributes::service.name: cannot be switched off, since exporters would merge the resources",
		"timeout_zero":               noTimeout,
		"delay_negative":             "initial_delay: -1s: must not be negative",
		"family_timeout_long":        "scrapers::host: timeout: 5s: must not be longer than collection_interval (4s)",
		"family_timeout_zero":        "scrapers::host: " + noTimeout,
		"family_delay_negative":      "scrapers::host: initial_delay: -1s: must not be negative",
		"detection_zero":             "detection_interval: 0s: must be above 0",
		"detection_negative":         "detection_interval: -1m0s: must be above 0",
		"root_relative":              `root_path: "hostfs": must be absolute`,
		"root_missing":               "root_path: stat /no/such/folder: no such file or directory; mount the machine's / there",
		"root_file":                  `root_path: "/dev/null": is not a directory`,
		"naming_unknown":             `naming: unknown value "tags"` + styles,
		"naming_empty":               `naming: unknown value ""` + styles,
		"naming_semconv":             "naming: semconv is not available yet" + styles,
		"label_newline":              `label: "a\nb": must be one line`,
		"pid_negative":               "workloads: pid: -1" + noPid,
		"pid_float":                  "workloads: pid: 1.5" + noPid,
		"pid_word":                   "workloads: pid: me" + noPid,
		"pid_bool":                   "workloads: pid: true" + noPid,
		"pid_list":                   "workloads: pid: [1 2]" + noPid,
		"pid_gone":                   `workloads: pid: there is no process 999999999 below /proc; name one that runs, by its pid there, or "self" for the collector itself`,
		"discover_unknown":           `workloads: discover::1: unknown value "docker"` + kinds,
		"discover_case":              `workloads: discover::0: unknown value "Wandb"` + kinds,
		"discover_holders":           noHolders,
		"match_empty_rule":           "workloads::match::1: " + noRule,
		"match_empty_expressions":    "workloads::match::0: " + noRule,
		"match_bad_name":             "workloads::match::0: name: error parsing regexp: missing closing ): `python(`",
		"match_bad_exe":              "workloads::match::1: exe: error parsing regexp: missing argument to repetition operator: `*`",
		"match_bad_command":          "workloads::match::0: command: error parsing regexp: invalid character class range: `z-a`",
		"match_bad_user":             "workloads::match::0: user: error parsing regexp: invalid or unsupported Perl syntax: `(?<`",
		"max_workloads_zero":         "workloads: max_workloads: 0: must be above 0",
		"max_workloads_negative":     "workloads: max_workloads: -1: must be above 0",
		"max_processes_zero":         "workloads: max_processes: 0: must be above 0",
		"max_processes_negative":     "workloads: max_processes: -7: must be above 0",
		"kubelet_null":               "workloads::kubernetes::kubelet: endpoint: must be set to https://NODE:10250, or the environment variable NODE_NAME to the node's name (spec.nodeName)",
		"kubelet_no_url":             "workloads::kubernetes::kubelet: " + noEndpoint("node-7:10250"),
		"kubelet_timeout_zero":       "workloads::kubernetes::kubelet: " + noKubeletTimeout,
		"kubelet_token_in_the_clear": "workloads::kubernetes::kubelet: token_file: needs an https endpoint, since others on the network could read the token",
		"pod_resources_tcp":          "workloads::kubernetes::pod_resources: " + noSocket("tcp://node-7:1"),
		"workloads_errors": strings.Join([]string{
			`root_path: "hostfs": must be absolute`,
			noHolders,
			"workloads: pid: me" + noPid,
			`discover::0: unknown value "docker"` + kinds,
			"max_workloads: 0: must be above 0",
			"max_processes: 0: must be above 0",
			"workloads::match::0: " + noRule,
			"workloads::match::1: name: error parsing regexp: missing closing ): `(`",
			"user: error parsing regexp: unexpected ): `)`",
			"workloads::kubernetes::kubelet: " + noEndpoint("node-7"),
			noKubeletTimeout,
			"workloads::kubernetes::pod_resources: " + noSocket(""),
			noKubeletTimeout,
		}, "\n"),
		"denominator_unknown":             `scrapers::host::cpu_denominator: unknown value "cores"; use available, logical or physical`,
		"denominator_empty":               `scrapers::host::cpu_denominator: unknown value ""; use available, logical or physical`,
		"cgroup_memory_unknown":           `scrapers::host::cgroup_memory: unknown value "rss"; use working_set, usage or anon`,
		"max_series_zero":                 "scrapers::host::max_series: 0: must be above 0",
		"max_series_negative":             "scrapers::host::max_series: -5: must be above 0",
		"disk_relative":                   `scrapers::host: disk_paths: "data": must be absolute`,
		"disk_twice":                      `scrapers::host: disk_paths: "/data": is listed twice`,
		"disk_empty":                      `scrapers::host: disk_paths: "": must be absolute`,
		"network_include_bad":             "scrapers::host::network: include: \"eth(\": error parsing regexp: missing closing ): `eth(`",
		"openmetrics_bad_filter":          "scrapers::openmetrics: filters::1: error parsing regexp: missing closing ): `GPU(`",
		"openmetrics_endpoint_bad_filter": "scrapers::openmetrics: endpoints::dcgm::filters::TEMP::gpu: error parsing regexp: missing argument to repetition operator: `*`",
		"openmetrics_bad_url":             "scrapers::openmetrics: endpoints::dcgm: endpoint: must begin with http://, https:// or unix:///",
		"openmetrics_credentials":         "scrapers::openmetrics: endpoints::dcgm: endpoint: must not hold credentials, which would be shown; use auth, or headers",
		"openmetrics_timeout_long":        "scrapers::openmetrics: endpoints::dcgm: timeout: 5s: must not be longer than the family's timeout (4s)",
		"openmetrics_timeout_clamped":     "scrapers::openmetrics: endpoints::dcgm: timeout: 5s: must not be longer than the family's timeout (3s)",
		"openmetrics_protocol": `scrapers::openmetrics::endpoints::dcgm::scrape_protocols::0: unknown value "text"; ` +
			"use some of OpenMetricsText0.0.1, OpenMetricsText1.0.0, PrometheusProto, PrometheusText0.0.4, PrometheusText1.0.0",
		"openmetrics_max_series": "scrapers::openmetrics::max_series: 0: must be above 0\n" +
			"scrapers::openmetrics: endpoints::dcgm: max_series: -1: must be above 0",
		"validate_errors": strings.Join([]string{
			`root_path: "hostfs": must be absolute`,
			"detection_interval: 0s: must be above 0",
			"initial_delay: -1s: must not be negative",
			"timeout: 6s: must not be longer than collection_interval (5s)",
			"scrapers::host::max_series: 0: must be above 0",
			`label: "a\nb": must be one line`,
			`naming: unknown value "tags"` + styles,
			"workloads: pid: me" + noPid,
			`scrapers::host: disk_paths: "data": must be absolute`,
			"scrapers::host::network: exclude: \"eth(\": error parsing regexp: missing closing ): `eth(`",
		}, "\n"),
	} {
		t.Run(name, func(t *testing.T) {
			cfg := createDefaultConfig()
			require.NoError(t, section(t, name).Unmarshal(cfg))
			require.EqualError(t, confmap.Validate(cfg), want)
		})
	}
}

func TestSectionOfOpenMetrics(t *testing.T) {
	cfg := decode(t, section(t, "openmetrics")).Scrapers["openmetrics"].(*openmetrics.Config)
	assert.Equal(t, scrapers.Timing{CollectionInterval: 20 * time.Second, InitialDelay: time.Second, Timeout: 10 * time.Second}, cfg.CommonConfig.Timing)
	assert.Equal(t, 11_010, cfg.CommonConfig.MaxSeries)
	assert.Equal(t, []any{"TEMP$", "vllm:.*"}, cfg.Filters)
	require.Len(t, cfg.Endpoints, 2)
	assert.Equal(t, "http://localhost:9400/metrics", cfg.Endpoints["dcgm"].ClientConfig.Endpoint)
	vllm := cfg.Endpoints["vllm.a-1"]
	assert.Equal(t, 2*time.Second, vllm.ClientConfig.Timeout)
	assert.Equal(t, map[string]any{
		`^vllm\.a-1\.vllm:requests$`: map[string]any{},
		"a.b:c":                      map[string]any{"gpu": "^[0-3]$"},
	}, vllm.Filters)
	assert.Equal(t, []any{"_created$$"}, vllm.Exclude, "the collector's resolver makes one of two")
	assert.True(t, vllm.StaleMarkers)
	assert.Empty(t, decode(t, section(t, "openmetrics_null")).Scrapers["openmetrics"].(*openmetrics.Config).Endpoints)
}

func TestTarget(t *testing.T) {
	for name, want := range map[string]scrapers.Target{
		"empty":                {},
		"pid_zero":             {Tree: true},
		"pid_null":             {},
		"pid_number":           {Pid: 1, Tree: true},
		"pid_number_in_quotes": {Pid: 1, Tree: true},
		"pid_self":             {Self: true, Tree: true},
		"tree_on":              {Self: true, Tree: true},
		"tree_off":             {Self: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := decode(t, section(t, name))
			got, err := cfg.Workloads.target()
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
}

// disabled lists the metrics that are off.
func disabled(t *testing.T, cfg *Config) []string {
	t.Helper()
	out := confmap.New()
	require.NoError(t, out.Marshal(cfg.MetricsBuilderConfig))
	metrics, err := out.Sub("metrics")
	require.NoError(t, err)
	var off []string
	for name, values := range metrics.ToStringMap() {
		if values.(map[string]any)["enabled"] == false {
			off = append(off, name)
		}
	}
	return off
}

func TestExtended(t *testing.T) {
	type m = map[string]any
	off := m{"enabled": false}
	byDefault := disabled(t, createDefaultConfig().(*Config))
	require.Contains(t, byDefault, "cpu.powerWatts")
	for name, tt := range map[string]struct {
		section m
		want    []string
	}{
		"turns on every metric":                   {m{"extended": true}, nil},
		"an explicit switch beats it":             {m{"extended": true, "metrics": m{"cpu.powerWatts": off, "cpu": off}}, []string{"cpu.powerWatts", "cpu"}},
		"a metrics section with nothing in it":    {m{"extended": true, "metrics": nil}, nil},
		"a metric's section with nothing in it":   {m{"extended": true, "metrics": m{"cpu.powerWatts": nil}}, nil},
		"an empty section of a metric":            {m{"extended": true, "metrics": m{"cpu.powerWatts": m{}}}, nil},
		"a section of a metric that is on anyway": {m{"extended": true, "metrics": m{"cpu": nil}}, nil},
		"false changes nothing":                   {m{"extended": false}, byDefault},
		"null changes nothing":                    {m{"extended": nil}, byDefault},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ElementsMatch(t, tt.want, disabled(t, decode(t, confmap.NewFromStringMap(tt.section))))
		})
	}
	t.Run("a metrics section of the wrong type is refused", func(t *testing.T) {
		conf := confmap.NewFromStringMap(m{"extended": true, "metrics": []any{"cpu"}})
		require.ErrorContains(t, conf.Unmarshal(createDefaultConfig()), "'metrics' expected a map")
	})
}

// envProvider expands ${env:NAME} as the collector's own does.
type envProvider map[string]string

func (p envProvider) Retrieve(_ context.Context, uri string, _ confmap.WatcherFunc) (*confmap.Retrieved, error) {
	return confmap.NewRetrievedFromYAML([]byte(p[strings.TrimPrefix(uri, "env:")]))
}
func (envProvider) Scheme() string                 { return "env" }
func (envProvider) Shutdown(context.Context) error { return nil }

func TestValuesFromTheEnvironment(t *testing.T) {
	provider := envProvider{
		"CONFIG":   "{extended: '${env:EXTENDED}', label: '${env:LABEL}', workloads: {pid: '${env:PID}'}, scrapers: '${env:SCRAPERS}'}",
		"EXTENDED": "true", "LABEL": "0123", "PID": "1", "SCRAPERS": "{host: {max_series: 9}}",
	}
	resolver, err := confmap.NewResolver(confmap.ResolverSettings{
		URIs:              []string{"env:CONFIG"},
		ProviderFactories: []confmap.ProviderFactory{confmap.NewProviderFactory(func(confmap.ProviderSettings) confmap.Provider { return provider })},
	})
	require.NoError(t, err)
	conf, err := resolver.Resolve(t.Context())
	require.NoError(t, err)
	cfg := decode(t, conf)
	assert.True(t, cfg.Extended)
	assert.Empty(t, disabled(t, cfg))
	assert.Equal(t, "0123", cfg.Label)
	target, err := cfg.Workloads.target()
	require.NoError(t, err)
	assert.Equal(t, scrapers.Target{Pid: 1, Tree: true}, target)
	require.Contains(t, cfg.Scrapers, "host")
	assert.Equal(t, 9, cfg.Scrapers["host"].Common().MaxSeries)
}

func TestUnmarshalLeavesTheGivenSectionAlone(t *testing.T) {
	content := func() map[string]any {
		return map[string]any{
			"extended": true,
			"label":    "x",
			"metrics":  map[string]any{"cpu": map[string]any{"enabled": false}, "cpu.powerWatts": nil},
			"scrapers": map[string]any{"host": map[string]any{"max_series": 3}},
		}
	}
	conf := confmap.NewFromStringMap(content())
	decode(t, conf)
	require.Equal(t, content(), conf.ToStringMap())
}

func TestUnmarshalOfNoSection(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	require.NoError(t, cfg.Unmarshal(nil))
	require.NoError(t, confmap.Validate(cfg))
}

func TestMarshalledConfigReadsTheSame(t *testing.T) {
	for _, name := range []string{"empty", "all_keys", "family_overrides", "pid_number", "discover_none", "match_one", "kubelet_on", "kubelet_keepalive", "pod_resources_on", "openmetrics"} {
		t.Run(name, func(t *testing.T) {
			cfg := decode(t, section(t, name))
			out := confmap.New()
			require.NoError(t, out.Marshal(cfg))
			if cfg.Scrapers == nil {
				require.False(t, out.IsSet(scrapersKey), "what was printed must not turn every family off")
			}
			read := decode(t, confmap.NewFromStringMap(out.ToStringMap()))
			assert.Equal(t, cfg.Workloads, read.Workloads)
			again := confmap.New()
			require.NoError(t, again.Marshal(read))
			assert.Equal(t, out.ToStringMap(), again.ToStringMap())
		})
	}
}

func TestRootPathThatIsThere(t *testing.T) {
	dir := t.TempDir()
	assert.Equal(t, dir, decode(t, confmap.NewFromStringMap(map[string]any{"root_path": dir})).RootPath)
}

// A process that is not there is told from one that cannot be seen.
func TestPidBelowTheRootPath(t *testing.T) {
	const pid = 4711
	refused := func(root string) string {
		return "workloads: pid: there is no process 4711 below " + filepath.Join(root, "proc") +
			"; name one that runs, by its pid there, or \"self\" for the collector itself"
	}
	for name, tt := range map[string]struct {
		folders []string
		want    func(root string) string
	}{
		"it runs":                                {folders: []string{"proc/1", "proc/4711"}},
		"it does not run":                        {folders: []string{"proc/1", "proc/4712"}, want: refused},
		"processes are hidden, pid 1 among them": {folders: []string{"proc/4712"}},
		"there is no /proc":                      {},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, folder := range tt.folders {
				require.NoError(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
			}
			cfg := createDefaultConfig().(*Config)
			cfg.RootPath, cfg.Workloads.Pid = root, pid
			err := confmap.Validate(cfg)
			if tt.want == nil {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.want(root))
			cfg.Workloads.Pid = "self"
			require.NoError(t, confmap.Validate(cfg), "self is never refused")
		})
	}
}
