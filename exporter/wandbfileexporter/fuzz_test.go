// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfileexporter

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"go.opentelemetry.io/collector/pdata/pmetric"
)

// FuzzFiles requires of any payload that what is written are whole logs in the
// directory, and nothing beside it.
func FuzzFiles(f *testing.F) {
	f.Add("cpu", "path", "/", "host.name", "../../x", "{host.name}/..")
	f.Add("gpu.temp", "gpu_vendor", "\xff", "service.instance.id", "a/../../../b", "\x00")
	f.Add("what", "\xfe", "\n", "k8s.pod.name", "..", "{{")
	f.Add("disk.usageGB", "path", "..", "wandb.label", "/l:\xff", "{wandb.label|'/'}")
	f.Fuzz(func(t *testing.T, metric, key, value, rkey, rvalue, name string) {
		parent := t.TempDir()
		cfg := directConfig(filepath.Join(parent, "wandb"))
		cfg.Project, cfg.Group, cfg.DisplayName, cfg.Tags = name, name, name, []string{name, rvalue}
		if cfg.Validate() != nil {
			t.Skip()
		}
		var payloads []pmetric.Metrics
		for i := range 3 {
			md := machine(i, i, metric, "cpu", "gpu.temp")
			add(md, rvalue, i, i, metric)
			for _, rm := range md.ResourceMetrics().All() {
				rm.Resource().Attributes().PutStr(rkey, rvalue)
				for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
					m.Gauge().DataPoints().At(0).Attributes().PutStr(key, value)
				}
			}
			payloads = append(payloads, md)
		}
		write(t, cfg, payloads...)

		require.NotEmpty(t, logs(t, cfg.Directory))
		entries, err := os.ReadDir(parent)
		require.NoError(t, err)
		require.Len(t, entries, 1, "something is beside the directory")
	})
}
