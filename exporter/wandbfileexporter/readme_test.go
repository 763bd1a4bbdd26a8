// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfileexporter

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

var (
	// readmeRow is a row of the README's table of keys: key, default.
	readmeRow = regexp.MustCompile("(?m)^\\| `([a-z_:]+)` \\| (.*?[^\\\\]) \\|")
	code      = regexp.MustCompile("`(.+)`")
	// helperSections are documented by the exporterhelper; the README has what is our own.
	helperSections = []string{"retry_on_failure", "sending_queue"}
)

// readmeDefaults are the defaults of the README's table, as they would be configured.
func readmeDefaults(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	defaults := map[string]any{}
	for _, row := range readmeRow.FindAllStringSubmatch(string(text), -1) {
		key, said := row[1], row[2]
		require.NotContains(t, defaults, key)
		defaults[key] = readmeDefault(t, said)
	}
	return defaults
}

// readmeDefault reads a cell: code is YAML, but for a template; without code it says that there is none.
func readmeDefault(t *testing.T, cell string) any {
	t.Helper()
	found := code.FindStringSubmatch(cell)
	if found == nil {
		require.Contains(t, []string{"(required)", "(empty)"}, cell)
		return ""
	}
	text := strings.ReplaceAll(found[1], `\|`, "|")
	if strings.HasPrefix(text, "{") {
		return text
	}
	var value any
	require.NoError(t, yaml.Unmarshal([]byte(text), &value), cell)
	return value
}

// configKeys are the keys that a user may write.
func configKeys(t *testing.T) (keys []string) {
	t.Helper()
	conf := confmap.New()
	require.NoError(t, conf.Marshal(defaultConfig()))
	for _, key := range conf.AllKeys() {
		if section, _, _ := strings.Cut(key, confmap.KeyDelimiter); slices.Contains(helperSections, section) {
			key = section
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func TestReadmeHasAllKeysAndTheirDefaults(t *testing.T) {
	said := readmeDefaults(t)
	var keys []string
	for key := range said {
		keys = append(keys, key)
	}
	require.ElementsMatch(t, configKeys(t), keys)
	for key, value := range said {
		got := defaultConfig()
		require.NoError(t, confmap.NewFromStringMap(map[string]any{key: value}).Unmarshal(got), key)
		assert.Equal(t, defaultConfig(), got, key)
	}
}
