// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// secretNames are variables that training processes have and nobody may see.
var secretNames = []string{
	"WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "OPENAI_API_KEY", "GITHUB_TOKEN",
	"WANDB_PROJECT_KEY", "XWANDB_ENTITY", "WANDB_BASE_URL", "DATABASE_URL", "Wandb_Entity",
}

// Environments and command lines are read for a few names. Nothing else of them
// may get out, by no way, however much is logged and whatever is searched in them.
func TestNothingElseOfAnEnvironmentGetsOut(t *testing.T) {
	var env, secrets []string
	plant := func(name string) string {
		secret := "s3cr3t" + rand.Text()
		secrets = append(secrets, secret)
		return name + "=" + secret
	}
	for _, name := range secretNames {
		env = append(env, plant(name))
	}
	env = append(env, "WANDB_ENTITY=team", "RANK=0")
	argument := plant("--api-key")
	tr := startTraining(t, training{
		work: "idle", runs: []string{"run-20260102_030405-abc/run-abc.wandb"}, env: env, arguments: []string{argument},
	})
	other := exec.Command("sleep", "600")
	other.Env = append(plainEnv(), append(env, plant("HOSTNAME_TOKEN"))...)
	matched := startProcess(t, other)
	// A process may put what it likes where its name was, all its arguments too.
	titled := exec.Command("sleep", "600")
	titled.Args[0] = "sleep: started with " + plant("--api-key")
	title := startProcess(t, titled)

	var mu sync.Mutex
	var sent strings.Builder
	s := startSink(t, func(md pmetric.Metrics) {
		text, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(md)
		if err != nil {
			t.Error(err) // the test itself waits elsewhere
		}
		mu.Lock()
		defer mu.Unlock()
		sent.Write(text)
	})
	file, address, health := filepath.Join(t.TempDir(), "out.json"), freeAddress(t), freeAddress(t)
	p := startCollector(t, settings{
		receivers: `
wandbsys:
  collection_interval: 300ms
  initial_delay: 0s
  extended: true
  workloads:
    discover: [wandb, slurm, kubernetes]
    match:
      - {command: "api-key=s3cr3t", exe: e2e}
      - {name: sleep, command: "sleep.* 600", user: .}
`,
		exporters: s.exporter() + "file: {path: " + file + ", flush_interval: 100ms}\n" +
			"debug: {verbosity: detailed}\nprometheus: {endpoint: '" + address + "', resource_to_telemetry_conversion: {enabled: true}}",
		metrics: pullReader(health),
		logs:    "level: debug",
	})
	p.waitFor("all processes", func() bool {
		return s.points().ofPid(tr.pid()).scrapesAfter(p.started) >= 5 && s.points().ofPid(matched.pid()).scrapesAfter(p.started) >= 5 &&
			s.points().ofPid(title.pid()).scrapesAfter(p.started) >= 5
	})
	var pages string
	for _, endpoint := range []string{address, health} {
		p.waitFor("the endpoint", func() bool {
			page, _, err := get("http://" + endpoint + "/metrics")
			pages += string(page)
			return err == nil
		})
	}
	run := s.points().ofRun("abc").last()
	assert.Equal(t, tr.resource(firstLine(t, "/etc/hostname"), "abc", map[string]any{"wandb.entity": "team", "wandb.rank": int64(0)}), apart(run.resource),
		"what may be seen is there")
	assert.Equal(t, "match", s.points().ofPid(matched.pid()).last().resource["wandbsys.workload.kind"])
	assert.Equal(t, "sleep:", s.points().ofPid(title.pid()).last().resource["process.command"])
	p.stop()

	written, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, p.stderr.String(), `"level":"debug"`)
	mu.Lock()
	defer mu.Unlock()
	for what, text := range map[string]string{
		"what is sent": sent.String(), "the file": string(written), "the endpoints": pages,
		"the log": p.stderr.String() + p.stdout.String(),
	} {
		t.Run(what, func(t *testing.T) {
			require.Contains(t, text, "abc", "the run is in it")
			for _, name := range secretNames {
				if strings.Contains(text, name) {
					t.Errorf("%s is named", name)
				}
			}
			for i, secret := range secrets {
				if strings.Contains(text, secret) {
					t.Errorf("secret %d is told", i)
				}
			}
		})
	}
	require.NotContains(t, fmt.Sprint(s.points()), "s3cr3t")
}
