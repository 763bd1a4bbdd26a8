// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

// workloads stands for the section that the config is a part of.
type workloads struct {
	Kubernetes Config `mapstructure:"kubernetes"`
}

// load reads a section as the collector does.
func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &values))
	all := workloads{Kubernetes: NewDefaultConfig()}
	conf := confmap.NewFromStringMap(map[string]any{"kubernetes": values})
	if err := conf.Unmarshal(&all); err != nil {
		return Config{}, err
	}
	return all.Kubernetes, confmap.Validate(&all)
}

func mustLoad(t *testing.T, text string) Config {
	t.Helper()
	cfg, err := load(t, text)
	require.NoError(t, err)
	return cfg
}

func TestConfigStruct(t *testing.T) {
	cfg := NewDefaultConfig()
	require.NoError(t, componenttest.CheckConfigStruct(&cfg))
}

func TestConfigIsOffWithoutKeys(t *testing.T) {
	for _, text := range []string{"", "kubelet: {enabled: false}\npod_resources: {enabled: false}"} {
		cfg := mustLoad(t, text)
		assert.Nil(t, cfg.Kubelet.Get())
		assert.Nil(t, cfg.PodResources.Get())
	}
}

func TestConfigOfKeysWithNothingAfterThem(t *testing.T) {
	t.Setenv(nodeNameEnv, "node1")
	cfg := mustLoad(t, "kubelet:\npod_resources:\n")
	kubelet, resources := cfg.Kubelet.Get(), cfg.PodResources.Get()
	require.NotNil(t, kubelet)
	require.NotNil(t, resources)
	assert.Equal(t, 2*time.Second, kubelet.HTTP.Timeout)
	assert.False(t, kubelet.HTTP.Keepalive.HasValue())
	assert.Equal(t, PodResourcesConfig{Endpoint: "unix:///var/lib/kubelet/pod-resources/kubelet.sock", Timeout: 2 * time.Second}, *resources)
	u, err := kubelet.podsURL()
	require.NoError(t, err)
	assert.Equal(t, "https://node1:10250/pods", u.String())
}

func TestConfigReadsKeys(t *testing.T) {
	cfg := mustLoad(t, `
kubelet:
  endpoint: https://10.0.0.1:10250
  token_file: /token
  timeout: 3s
  tls: {insecure_skip_verify: true}
pod_resources:
  endpoint: unix:///hostfs/kubelet.sock
  timeout: 1s
`)
	kubelet := cfg.Kubelet.Get()
	assert.Equal(t, "https://10.0.0.1:10250", kubelet.HTTP.Endpoint)
	assert.Equal(t, "/token", kubelet.TokenFile)
	assert.Equal(t, 3*time.Second, kubelet.HTTP.Timeout)
	assert.True(t, kubelet.HTTP.TLS.InsecureSkipVerify)
	assert.Equal(t, PodResourcesConfig{Endpoint: "unix:///hostfs/kubelet.sock", Timeout: time.Second}, *cfg.PodResources.Get())
}

func TestPodsURL(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://n:10250":           "https://n:10250/pods",
		"https://n:10250/":          "https://n:10250/pods",
		"https://[fd00::1]:10250":   "https://[fd00::1]:10250/pods",
		"http://n:10255":            "http://n:10255/pods",
		"https://api/nodes/n/proxy": "https://api/nodes/n/proxy/pods",
	} {
		var c PodListConfig
		c.HTTP.Endpoint = endpoint
		u, err := c.podsURL()
		require.NoError(t, err)
		assert.Equal(t, want, u.String())
	}
}

func TestConfigRefuses(t *testing.T) {
	t.Setenv(nodeNameEnv, "")
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"unknown_key":          {"kubletx: {}", []string{"kubletx"}},
		"unknown_kubelet_key":  {"kubelet: {endpont: x}", []string{"endpont"}},
		"unknown_socket_key":   {"pod_resources: {endpont: x}", []string{"endpont"}},
		"no_endpoint":          {"kubelet:", []string{"kubelet: endpoint: must be set", "NODE_NAME"}},
		"scheme":               {"kubelet: {endpoint: 'ftp://n'}", []string{`endpoint: "ftp://n": must be https://NODE:10250`}},
		"no_scheme":            {"kubelet: {endpoint: 'n'}", []string{`endpoint: "n": must be`}},
		"no_host":              {"kubelet: {endpoint: 'https://:10250'}", []string{`endpoint: "https://:10250": must be`}},
		"query":                {"kubelet: {endpoint: 'https://n?x'}", []string{"without user, query"}},
		"all_at_once":          {"kubelet: {endpoint: n, timeout: 0s}", []string{"endpoint:", "timeout: 0s: must be above 0"}},
		"token_in_plain_text":  {"kubelet: {endpoint: 'http://n:10255', token_file: /x}", []string{"token_file: needs an https endpoint"}},
		"token_beside_auth":    {"kubelet: {endpoint: 'https://n', token_file: /x, auth: {authenticator: bearertokenauth}}", []string{"token_file: cannot stand beside"}},
		"token_beside_header":  {"kubelet: {endpoint: 'https://n', token_file: /x, headers: {authorization: y}}", []string{"token_file: cannot stand beside"}},
		"tls":                  {"kubelet: {endpoint: 'https://n', tls: {ca_file: a, ca_pem: b}}", []string{"tls"}},
		"socket_on_a_network":  {"pod_resources: {endpoint: 'localhost:1'}", []string{`pod_resources: endpoint: "localhost:1": must be a socket`}},
		"relative_socket":      {"pod_resources: {endpoint: 'unix://kubelet.sock'}", []string{`endpoint: "unix://kubelet.sock": must be`}},
		"socket_timeout":       {"pod_resources: {timeout: -1s}", []string{"pod_resources: timeout: -1s: must be above 0"}},
		"not_a_section":        {"kubelet: yes please", []string{"kubelet"}},
		"pod_resources_string": {"pod_resources: unix:///x", []string{"pod_resources"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tc.text)
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestConfigShowsNoSecrets(t *testing.T) {
	for _, endpoint := range []string{"https://user:hunter2@n", "https://user:hunter2@n:x"} {
		_, err := load(t, "kubelet: {endpoint: '"+endpoint+"'}")
		require.ErrorContains(t, err, "endpoint: must be a URL")
		assert.NotContains(t, err.Error(), "hunter2")
	}
	cfg := mustLoad(t, "kubelet: {endpoint: 'https://n', headers: {Authorization: hunter2}, tls: {ca_pem: hunter2}}")
	conf := confmap.New()
	require.NoError(t, conf.Marshal(workloads{Kubernetes: cfg}))
	assert.Contains(t, fmt.Sprint(conf.ToStringMap()), "https://n")
	assert.NotContains(t, fmt.Sprint(conf.ToStringMap()), "hunter2")
	all := workloads{Kubernetes: cfg}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		printed := fmt.Sprintf(format, all)
		assert.Contains(t, printed, "https://n")
		assert.NotContains(t, printed, "hunter2")
	}
}
