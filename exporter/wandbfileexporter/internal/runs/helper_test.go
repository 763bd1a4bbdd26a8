// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/template"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is when the clock of a place starts.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// place is a Store with its directory and a clock that the test sets.
type place struct {
	*Store
	t    testing.TB
	now  time.Time
	logs *observer.ObservedLogs
	work Work
}

// newPlace returns a place in a directory that is not there yet.
func newPlace(t testing.TB, change ...func(*Options)) *place {
	t.Helper()
	p := &place{t: t, now: noon}
	core, logs := observer.New(zap.DebugLevel)
	p.logs = logs
	o := Options{
		Directory: filepath.Join(t.TempDir(), "wandb"),
		Names:     Names{Project: tmpl("wandbsys"), Group: tmpl("{host.name}")},
		Sync:      SyncNever, Interval: 15 * time.Second,
		Producer: Producer{Name: "ours", Version: "1.2.3"},
		Logger:   zap.New(core), Now: func() time.Time { return p.now },
		Did: func(w Work) {
			p.work.Opened += w.Opened
			p.work.Removed += w.Removed
			p.work.Records += w.Records
			p.work.Bytes += w.Bytes
		},
	}
	for _, f := range change {
		f(&o)
	}
	p.Store = New(o)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// tmpl is a template that is known to be one.
func tmpl(text string) template.Template {
	parsed, err := template.Parse(text)
	if err != nil {
		panic(err)
	}
	return parsed
}

// in makes Options of a place for a directory.
func in(directory string) func(*Options) { return func(o *Options) { o.Directory = directory } }

func (p *place) write(subject *Subject, r *Record) {
	p.t.Helper()
	require.NoError(p.t, p.Write(subject, r))
}

// logsOf returns the paths of all runs.
func logsOf(t testing.TB, directory string) []string {
	t.Helper()
	paths, err := wandbfiletest.Runs(directory)
	require.NoError(t, err)
	for _, path := range paths {
		require.NoError(t, wandbfiletest.CheckFolder(path))
	}
	return paths
}

// read returns all runs, which must be whole, in the order of their start.
func (p *place) read() []*wandbfiletest.File {
	p.t.Helper()
	files, err := wandbfiletest.ReadRuns(p.Directory)
	require.NoError(p.t, err)
	for i, f := range files {
		require.False(p.t, f.Truncated, i)
	}
	return files
}

func readLog(t testing.TB, path string) *wandbfiletest.File {
	t.Helper()
	f, err := wandbfiletest.ReadFile(path)
	require.NoError(t, err)
	return f
}

func runOf(t testing.TB, f *wandbfiletest.File) *wandbfiletest.Run {
	t.Helper()
	require.GreaterOrEqual(t, len(f.Records), 3)
	require.NotNil(t, f.Records[1].Run)
	return f.Records[1].Run
}

// exitOf returns the exit record, nil if there is none.
func exitOf(f *wandbfiletest.File) *wandbfiletest.Exit { return f.Records[len(f.Records)-1].Exit }

// host returns a machine with the attributes `key, value, ...`.
func host(name string, attributes ...any) *Subject {
	s := &Subject{Key: "host " + name, Attributes: pcommon.NewMap()}
	s.Attributes.PutStr("host.name", name)
	for i := 0; i < len(attributes); i += 2 {
		if err := s.Attributes.PutEmpty(attributes[i].(string)).FromRaw(attributes[i+1]); err != nil {
			panic(err)
		}
	}
	return s
}

// at returns a record so many seconds after noon.
func at(seconds float64, items ...Item) *Record {
	when := noon.Add(time.Duration(seconds * float64(time.Second)))
	return &Record{Begin: when, Time: when, Items: items}
}

func value(key string, i int64) Item { return Item{Key: key, Value: Int(i)} }

// stamp is so many seconds after noon, or before it.
func stamp(seconds int) pcommon.Timestamp {
	return pcommon.NewTimestampFromTime(noon.Add(time.Duration(seconds) * time.Second))
}

// padded returns a record of about so many bytes.
func padded(seconds float64, bytes int) *Record {
	r := at(seconds)
	for i := 0; bytes > 0; i++ {
		n := min(bytes, 4000)
		r.Items = append(r.Items, value("k"+string(rune('a'+i%26))+strings.Repeat("x", n)+string(rune('a'+i/26)), 1))
		bytes -= n
	}
	return r
}

// tree lists all that is in a directory, with what files and links have in them.
func tree(t testing.TB, directory string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(directory, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == directory {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		content := "directory"
		switch {
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = "file " + string(data)
		case d.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			content = "link " + target
		}
		all[name] = content
		return nil
	}))
	return all
}

// put writes a file below a directory.
func put(t testing.TB, data string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o750))
	require.NoError(t, os.WriteFile(name, []byte(data), 0o600))
	return name
}

// logged counts the messages that have a text in them.
func (p *place) logged(text string) int {
	return p.logs.Filter(func(e observer.LoggedEntry) bool { return strings.Contains(e.Message, text) }).Len()
}

func assertExists(t testing.TB, path string) {
	t.Helper()
	_, err := os.Lstat(path)
	assert.NoError(t, err)
}

func assertMissing(t testing.TB, path string) {
	t.Helper()
	_, err := os.Lstat(path)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
