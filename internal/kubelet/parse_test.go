// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// id is a container's id of one digit.
func id(digit string) string { return strings.Repeat(digit, 64) }

// exampleList is what testdata/pods.json has.
func exampleList() []Container {
	train := Container{Namespace: "ml", Pod: "train-0", PodUID: "0b1a2c3d-1111-4222-8333-abcdefabcdef", Containers: 3}
	of := func(name, digit string) Container {
		c := train
		c.Name, c.ID = name, id(digit)
		return c
	}
	return []Container{
		of("trainer", "3"),
		of("fetch", "1"),
		of("proxy", "2"),
		of("debugger", "4"),
		{
			Namespace: "kube-system", Pod: "kube-proxy-node1", Name: "kube-proxy",
			PodUID: "5d0a4f0e3f6b1c2d5d0a4f0e3f6b1c2d", ID: id("5"), Containers: 1,
		},
		{
			Namespace: "kube-system", Pod: "etcd-node1", Name: "etcd",
			PodUID: "aaaabbbbccccddddaaaabbbbccccdddd", ID: id("6"), Containers: 1,
		},
		{
			Namespace: "ml", Pod: "impostor", Name: "main",
			PodUID: "7e7e7e7e-3333-4444-8555-121212121212", ID: id("7"), Containers: 1,
		},
	}
}

func readExample(t testing.TB) []byte {
	t.Helper()
	content, err := os.ReadFile("testdata/pods.json")
	require.NoError(t, err)
	return content
}

func TestParsePods(t *testing.T) {
	got, err := parsePods(bytes.NewReader(readExample(t)))
	require.NoError(t, err)
	assert.Equal(t, exampleList(), got)
}

func TestParsePodsInSmallPieces(t *testing.T) {
	got, err := parsePods(iotest.OneByteReader(bytes.NewReader(readExample(t))))
	require.NoError(t, err)
	assert.Equal(t, exampleList(), got)
}

func TestParsePodsCutAnywhereIsAnError(t *testing.T) {
	content := bytes.TrimSpace(readExample(t))
	for n := range len(content) {
		got, err := parsePods(bytes.NewReader(content[:n]))
		require.Error(t, err, "cut after %d bytes", n)
		assert.Empty(t, got)
	}
}

func TestParsePodsWithoutContainers(t *testing.T) {
	for _, text := range []string{
		`{"items":null}`,
		`{"items":[]}`,
		`{"kind":"PodList","items":[],"metadata":{"a":[1,{}]}}`,
		`{"items":[{}]}`,
		`{"items":[null]}`,
		`{"items":[{"status":{"containerStatuses":[{"name":"a"},{"containerID":"a"},{"containerID":"containerd://"},{"containerID":null}]}}]}`,
	} {
		got, err := parsePods(strings.NewReader(text))
		require.NoError(t, err, text)
		assert.Empty(t, got, text)
	}
}

func TestParsePodsRefusesWhatIsNoList(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "unexpected EOF",
		"<html>":                                "invalid character",
		"null":                                  "stands where { belongs",
		"[]":                                    "[ stands where { belongs",
		`"x"`:                                   "x stands where { belongs",
		`{}`:                                    "no items",
		`{"kind":"Status"}`:                     "no items",
		`{"items":{}}`:                          "items begin with {",
		`{"items":7}`:                           "items begin with 7",
		`{"items":["x"]}`:                       "cannot unmarshal string",
		`{"items":[{"metadata":{"uid":7}}]}`:    "cannot unmarshal number",
		`{"items":[{"status":[]}]}`:             "cannot unmarshal array",
		`{"items":[{}}`:                         "invalid character",
		`{"items":[]} {}`:                       "something follows it",
		`{"items":[]}]`:                         "something follows it",
		`{"items":[],` + "\x00" + `"a":1}`:      "invalid character",
		`{"a":` + strings.Repeat("[", 20_000):   "exceeded max depth",
		`{"items":[` + strings.Repeat("[", 500): "unexpected EOF",
	} {
		got, err := parsePods(strings.NewReader(text))
		require.ErrorContains(t, err, want, "%.40s", text)
		assert.Empty(t, got)
	}
}

func FuzzParsePods(f *testing.F) {
	f.Add(readExample(f))
	f.Add([]byte(`{"items":null}`))
	f.Add([]byte(`{"a":[1],"items":[{}],"items":[{"status":{"containerStatuses":[{"containerID":"x://y"}]}}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := parsePods(bytes.NewReader(content))
		if err != nil {
			assert.Empty(t, got)
		}
		for _, c := range got {
			assert.NotEmpty(t, c.ID)
			assert.Empty(t, c.Devices)
		}
	})
}

// bigList is a list of pods as large as real ones, most of which is of no use here.
func bigList(pods int) []byte {
	var b bytes.Buffer
	ballast := strings.Repeat(`{"name":"SOME_VARIABLE","value":"the value of a variable"},`, 150)
	b.WriteString(`{"kind":"PodList","items":[`)
	for i := range pods {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"metadata":{"name":"pod-%d","namespace":"ml","uid":"uid-%d","annotations":{"kubernetes.io/config.source":"api"}},`+
			`"spec":{"containers":[{"name":"main","env":[%s{"name":"LAST"}]},{"name":"side"}]},`+
			`"status":{"containerStatuses":[{"name":"main","containerID":"containerd://%064x"},{"name":"side","containerID":"containerd://%064x"}]}}`,
			i, i, ballast, 2*i, 2*i+1)
	}
	b.WriteString("]}\n")
	return b.Bytes()
}

func BenchmarkParse200Pods(b *testing.B) {
	content := bigList(200)
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	for b.Loop() {
		if got, err := parsePods(bytes.NewReader(content)); err != nil || len(got) != 400 {
			b.Fatal(len(got), err)
		}
	}
}
