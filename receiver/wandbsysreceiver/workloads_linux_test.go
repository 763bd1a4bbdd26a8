// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsysreceiver

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/host"
)

// patience is how long anything may take on a machine that is busy.
const patience = 30 * time.Second

// accelerators is a family that tells who holds its devices.
type accelerators struct {
	mu       sync.Mutex
	settings scrapers.Settings
	holders  []int
}

func (a *accelerators) factory() scrapers.Factory {
	return scrapers.Factory{
		Name:          "accelerators",
		DefaultConfig: func() scrapers.Config { return &fakeConfig{} },
		TellsHolders:  true,
		New: func(set scrapers.Settings, _ scrapers.Config) (scrapers.Scraper, error) {
			a.settings = set
			return a, nil
		},
	}
}

func (*accelerators) Start(context.Context, component.Host) error { return nil }
func (*accelerators) Shutdown(context.Context) error              { return nil }

func (a *accelerators) Scrape(context.Context) (pmetric.Metrics, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settings.Workloads.SetHolders("accelerators", a.holders)
	return pmetric.NewMetrics(), nil
}

// hold says who holds the devices from now on.
func (a *accelerators) hold(pids ...int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holders = pids
}

// running is a receiver with real families, as the collector runs it.
type running struct {
	t    *testing.T
	sink *consumertest.MetricsSink
	logs *observer.ObservedLogs
	stop func()
}

// run starts a receiver with this section, which scrapes ten times a second.
func run(t *testing.T, families []scrapers.Factory, section map[string]any) *running {
	t.Helper()
	cfg := newDefaultConfig(families)
	conf := confmap.NewFromStringMap(map[string]any{
		"collection_interval": "1s", "initial_delay": "0s", "timeout": "1s", "host_name": "node",
	})
	require.NoError(t, conf.Merge(confmap.NewFromStringMap(section)))
	require.NoError(t, conf.Unmarshal(cfg))
	require.NoError(t, confmap.Validate(cfg))
	core, logs := observer.New(zap.DebugLevel)
	set := receivertest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(core)
	r := &running{t: t, sink: &consumertest.MetricsSink{}, logs: logs}
	receiver, err := newReceiver(t.Context(), set, cfg, r.sink)
	require.NoError(t, err)
	require.NoError(t, receiver.Start(t.Context(), &statusHost{}))
	var once sync.Once
	r.stop = func() {
		once.Do(func() { assert.NoError(t, receiver.Shutdown(context.Background())) })
	}
	t.Cleanup(r.stop)
	return r
}

// scrape returns the resources of the next whole scrape of the host, by id.
func (r *running) scrape() map[string]map[string]any {
	r.t.Helper()
	seen := len(r.sink.AllMetrics())
	for deadline := time.Now().Add(patience); len(r.sink.AllMetrics()) <= seen+1; {
		require.True(r.t, time.Now().Before(deadline), "no scrape; the log: %v", r.logs.All())
		time.Sleep(10 * time.Millisecond)
	}
	all := r.sink.AllMetrics()
	resources := map[string]map[string]any{}
	for _, rm := range all[len(all)-1].ResourceMetrics().All() {
		attrs := rm.Resource().Attributes().AsRaw()
		resources[attrs["service.instance.id"].(string)] = attrs
	}
	return resources
}

// await scrapes until there is such a resource, or no longer.
func (r *running) await(id string, there bool) map[string]any {
	r.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		all := r.scrape()
		if found, ok := all[id]; ok == there {
			return found
		}
		require.True(r.t, time.Now().Before(deadline), "%s: %t is awaited, there are %v", id, there, all)
	}
}

// warnings returns what was logged above info.
func (r *running) warnings() []string {
	var texts []string
	for _, e := range r.logs.All() {
		if e.Level > zapcore.InfoLevel {
			texts = append(texts, fmt.Sprint(e.Message, e.ContextMap()))
		}
	}
	return texts
}

// startSleep runs a process that does nothing, until it is ended.
func startSleep(t *testing.T) (pid int, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	require.NoError(t, cmd.Start())
	var once sync.Once
	end = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	t.Cleanup(end)
	return cmd.Process.Pid, end
}

func TestProcessesThatHoldAnAccelerator(t *testing.T) {
	a := &accelerators{}
	first, endFirst := startSleep(t)
	second, _ := startSleep(t)
	idOf := func(pid int) string { return "node/pid-" + strconv.Itoa(pid) }
	a.hold(first, 999_999_999) // one that is gone is nobody
	r := run(t, []scrapers.Factory{host.NewFactory(), a.factory()}, map[string]any{
		"workloads": map[string]any{"discover": []any{"gpu"}},
	})
	got := r.await(idOf(first), true)
	assert.Subset(t, got, map[string]any{
		"host.name": "node", "service.name": "wandbsys", "wandbsys.workload.kind": "gpu",
		"process.pid": int64(first), "process.executable.name": "sleep", "process.command": "sleep",
	})
	a.hold(first, second)
	r.await(idOf(second), true)
	assert.Len(t, r.scrape(), 3, "the machine and two processes")
	endFirst()
	r.await(idOf(first), false)
	a.hold()
	r.await(idOf(second), false)
	r.stop()
	assert.Empty(t, r.warnings())
}

// Without gpu under discover, who holds a device is nobody's business.
func TestHoldersThatAreNotAskedFor(t *testing.T) {
	a := &accelerators{}
	pid, _ := startSleep(t)
	a.hold(pid)
	r := run(t, []scrapers.Factory{host.NewFactory(), a.factory()}, map[string]any{
		"workloads": map[string]any{"discover": []any{"wandb"}},
	})
	for range 3 {
		assert.NotContains(t, r.scrape(), "node/pid-"+strconv.Itoa(pid))
	}
}

func TestHoldersAreWhatAFamilyTells(t *testing.T) {
	section := map[string]any{"workloads": map[string]any{"discover": []any{"gpu"}}}
	for name, tt := range map[string]struct {
		families []scrapers.Factory
		refused  bool
	}{
		"one tells":  {[]scrapers.Factory{host.NewFactory(), (&accelerators{}).factory()}, false},
		"none tells": {[]scrapers.Factory{host.NewFactory()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newDefaultConfig(tt.families)
			require.NoError(t, confmap.NewFromStringMap(section).Unmarshal(cfg))
			err := confmap.Validate(cfg)
			if !tt.refused {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, "workloads: discover: gpu: no family that is on tells which processes hold an accelerator")
		})
	}
}

const (
	podUID      = "0b1a2c3d-1111-4222-8333-abcdefabcdef"
	containerID = "3333333333333333333333333333333333333333333333333333333333333333"
)

// podList is what a kubelet says of one pod.
const podList = `{"kind": "PodList", "apiVersion": "v1", "items": [{
	"metadata": {"name": "train-0", "namespace": "ml", "uid": "` + podUID + `"},
	"spec": {"containers": [{"name": "trainer"}]},
	"status": {"containerStatuses": [{"name": "trainer", "containerID": "containerd://` + containerID + `"}]}
}]}`

// nodeRoot makes the root of a node with one container of one process.
func nodeRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"proc/meminfo":    "MemTotal: 1024000 kB\nMemFree: 100 kB\nMemAvailable: 256000 kB\n",
		"proc/stat":       "cpu  1 0 1 1 0 0 0 0 0 0\ncpu0 1 0 1 1 0 0 0 0 0 0\n",
		"proc/70/stat":    "70 (python) S 1 70 70 0 -1 0 0 0 0 0 5 5 0 0 20 0 3 0 1000 1 1 1 1 1 1 1\n",
		"proc/70/statm":   "9 7 5 3 0 1 0\n",
		"proc/70/status":  "Name:\tpython\nUid:\t0\t0\t0\t0\nNSpid:\t70\t1\nThreads:\t3\nCpus_allowed_list:\t0\n",
		"proc/70/cgroup":  "0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(podUID, "-", "_") + ".slice/cri-containerd-" + containerID + ".scope\n",
		"proc/70/cmdline": "python\x00train.py\x00",
		"proc/70/environ": "HOSTNAME=train-0\x00",
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return root
}

func TestNamesComeFromTheKubelet(t *testing.T) {
	const token = "token-of-the-test"
	var mu sync.Mutex
	asked, refuse := 0, false
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		if refuse || r.URL.Path != "/pods" || r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(podList))
	}))
	defer kubelet.Close()
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	section := map[string]any{
		"root_path": nodeRoot(t),
		// Who does not answer within a scrape is asked again after a minute.
		"collection_interval": "500ms", "timeout": "500ms",
		"scrapers": map[string]any{"host": map[string]any{"disk_paths": []any{}}},
		"workloads": map[string]any{"kubernetes": map[string]any{"kubelet": map[string]any{
			"endpoint":   kubelet.URL,
			"token_file": write("token", []byte(token+"\n")),
			"tls":        map[string]any{"ca_file": write("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: kubelet.Certificate().Raw}))},
		}}},
	}
	const id = "node/container-333333333333"
	want := map[string]any{
		"host.name": "node", "os.type": "linux", "service.name": "wandbsys", "service.instance.id": id,
		"wandbsys.workload.kind": "container", "container.id": containerID, "container.runtime": "containerd",
		"k8s.pod.uid": podUID, "k8s.qos": "guaranteed",
	}
	named := map[string]any{"k8s.namespace.name": "ml", "k8s.pod.name": "train-0", "k8s.container.name": "trainer"}

	t.Run("as it knows them", func(t *testing.T) {
		r := run(t, []scrapers.Factory{host.NewFactory()}, section)
		got := r.await(id, true)
		for deadline := time.Now().Add(patience); got["k8s.pod.name"] == nil && time.Now().Before(deadline); {
			got = r.await(id, true)
		}
		for key, value := range want {
			assert.Equal(t, value, got[key], key)
		}
		for key, value := range named {
			assert.Equal(t, value, got[key], key)
		}
		assert.Len(t, got, len(want)+len(named))
		for range 3 {
			assert.Equal(t, got, r.scrape()[id])
		}
		r.stop()
		assert.Empty(t, r.warnings())
		mu.Lock()
		defer mu.Unlock()
		assert.LessOrEqual(t, asked, 2, "what is known is not asked for again")
	})
	t.Run("but their ids do without it", func(t *testing.T) {
		mu.Lock()
		asked, refuse = 0, true
		mu.Unlock()
		r := run(t, []scrapers.Factory{host.NewFactory()}, section)
		got := r.await(id, true)
		for range 5 {
			r.scrape()
		}
		assert.Equal(t, want, got)
		r.stop()
		warnings := r.warnings()
		require.Len(t, warnings, 1)
		assert.Contains(t, warnings[0], "The names of pods and containers cannot be had")
		assert.Contains(t, warnings[0], "403 Forbidden")
		assert.NotContains(t, fmt.Sprint(r.logs.All()), token)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, 1, asked)
	})
}
