// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package ipu

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
)

func decoded(t *testing.T, section map[string]any) *Config {
	t.Helper()
	cfg := defaultConfig().(*Config)
	require.NoError(t, confmap.NewFromStringMap(section).Unmarshal(cfg))
	return cfg
}

// valid checks a section as the receiver does.
func valid(c *Config) error { return errors.Join(c.Source.Validate(), c.Validate()) }

func TestDefaultConfig(t *testing.T) {
	cfg := decoded(t, nil)
	assert.Equal(t, &Config{Source: sourceAuto, ToolTimeout: 10 * time.Second}, cfg)
	require.NoError(t, valid(cfg))
	assert.Same(t, &cfg.CommonConfig, cfg.Common())
}

func TestConfigThatIsRight(t *testing.T) {
	cfg := decoded(t, map[string]any{
		"source": "gc-info", "tool_dir": "/opt/gc/bin", "tool_timeout": "30s", "max_series": 5,
		"env": map[string]any{"IPUOF_CONFIG_PATH": "/etc/ipuof.conf.d/p.conf", "IPUOF_VIPU_API_PORT": "8090"},
	})
	require.NoError(t, valid(cfg))
	assert.Equal(t, map[string]string{"IPUOF_CONFIG_PATH": "/etc/ipuof.conf.d/p.conf", "IPUOF_VIPU_API_PORT": "8090"}, cfg.Env)
	for _, source := range []string{"auto", "command"} {
		cfg = decoded(t, map[string]any{"source": source, "command": []any{"/usr/bin/wrapper", "-a"}})
		require.NoError(t, valid(cfg))
		assert.Equal(t, []string{"/usr/bin/wrapper", "-a"}, cfg.Command)
	}
}

func TestConfigThatIsWrong(t *testing.T) {
	command := []any{"/usr/bin/wrapper"}
	for want, section := range map[string]map[string]any{
		`unknown value "gcipuinfo"; use auto, gc-inventory, gc-monitor, gc-info or command`: {"source": "gcipuinfo"},
		`tool_dir: "bin": must be absolute`:                                                 {"tool_dir": "bin"},
		"tool_timeout: 0s: must be above 0":                                                 {"tool_timeout": "0s"},
		"command: must name a program with source: command":                                 {"source": "command"},
		"command: has no effect with source: gc-info":                                       {"source": "gc-info", "command": command},
		"tool_dir: has no effect with command":                                              {"tool_dir": "/opt", "command": command},
		`command: "wrapper": must be absolute`:                                              {"command": []any{"wrapper"}},
		`env: "A=B": is no name and value of an environment variable`:                       {"env": map[string]any{"A=B": "x"}},
		`env: "A": is no name and value of an environment variable`:                         {"env": map[string]any{"A": "x\x00y"}},
		"tool_dir: \"bin\": must be absolute\ntool_timeout: -1s: must be above 0":           {"tool_dir": "bin", "tool_timeout": "-1s"},
	} {
		require.EqualError(t, valid(decoded(t, section)), want)
	}
}
