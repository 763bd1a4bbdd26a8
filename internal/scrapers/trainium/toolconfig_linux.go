// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// toolFile is neuron-monitor's configuration.
type toolFile struct {
	Period   string        `json:"period"`
	Runtimes []toolRuntime `json:"neuron_runtimes"`
	System   []toolMetric  `json:"system_metrics"`
}

type toolRuntime struct {
	TagFilter string       `json:"tag_filter"`
	Metrics   []toolMetric `json:"metrics"`
}

type toolMetric struct {
	Type string `json:"type"`
}

// toolConfig asks for what is used only: the CPUs' figures, which are not, make most
// of a line.
func toolConfig(period time.Duration, tagFilter string, w want) []byte {
	runtime := toolRuntime{
		TagFilter: cmp.Or(tagFilter, ".*"),
		Metrics:   []toolMetric{{"neuroncore_counters"}, {"memory_used"}},
	}
	if w.execution {
		runtime.Metrics = append(runtime.Metrics, toolMetric{"execution_stats"})
	}
	file := toolFile{
		Period: fmt.Sprintf("%ds", int64(period/time.Second)), Runtimes: []toolRuntime{runtime}, System: []toolMetric{},
	}
	if w.ecc {
		file.System = append(file.System, toolMetric{"neuron_hw_counters"})
	}
	text, _ := json.Marshal(file) // texts alone
	return text
}

// writeConfig writes the configuration where nobody else can read or change it. The
// function removes it.
func writeConfig(text []byte) (file string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "wandbsys-"+toolName+"-")
	if err != nil {
		return "", nil, fmt.Errorf("making a folder for the tool's configuration: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) } // it is the collector's own
	file = filepath.Join(dir, "monitor.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		remove()
		return "", nil, fmt.Errorf("writing the tool's configuration: %w", err)
	}
	return file, remove, nil
}
