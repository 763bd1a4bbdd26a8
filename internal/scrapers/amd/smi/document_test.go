// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDocumentIsTheFirstValueThatBeginsALine(t *testing.T) {
	for name, tt := range map[string]struct{ out, want string }{
		"alone":                              {`{"a": 1}`, `{"a": 1}`},
		"over several lines":                 {"{\n \"a\":\n 1\n}\n", "{\n \"a\":\n 1\n}"},
		"a list":                             {`[1]`, `[1]`},
		"after warnings":                     {"WARNING: low {power} [state]\n\n{\"a\": 1}", `{"a": 1}`},
		"after colours":                      {"\x1b[33mwarned\x1b[0m\n\x1b[0m {\"a\": 1}", `{"a": 1}`},
		"after what only looks like one":     {"[WARNING] no group\n{not one}\n{\"a\": 1}", `{"a": 1}`},
		"after a line end of Windows":        {"warned\r\n{\"a\": 1}\r\n", `{"a": 1}`},
		"twice":                              {"[1]\n[2]\n", `[1]`},
		"before a warning":                   {"{\"a\": 1}\nwarned", `{"a": 1}`},
		"before half of another one":         {"{\"a\": 1}\n{\"a\":", `{"a": 1}`},
		"with numbers that only Python has":  {`[NaN, -Infinity,Infinity, {"a":NaN}]`, `[null, null,null, {"a":null}]`},
		"with such numbers in texts":         {`{"NaN": "NaN"}`, `{"NaN": "NaN"}`},
		"with numbers beyond what can count": {`[1e999]`, `[1e999]`},
		"nothing":                            {"", ""},
		"white space":                        {" \r\n\t\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := document([]byte(tt.out), "[{")
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(got))
		})
	}
}

func TestDocumentTakesOnlyWhatMayBegin(t *testing.T) {
	got, err := document([]byte("[1]\n{\"a\": 1}"), "{")
	require.NoError(t, err)
	assert.JSONEq(t, `{"a": 1}`, string(got))
}

func TestDocumentSaysWhatWasThereInstead(t *testing.T) {
	long := strings.Repeat("ä", 2*maxQuote)
	for name, tt := range map[string]struct{ out, want string }{
		"text":              {"\n \x1b[33mUnable to find it\x1b[0m \nmore", `no figures, but "Unable to find it"`},
		"a table":           {"+---+\n| 0 |\n", `no figures, but "+---+"`},
		"invalid text":      {"a\xffb", `no figures, but "a?b"`},
		"a long line":       {long, `no figures, but "` + long[:maxQuote] + `..."`},
		"broken JSON":       {`{"a" 1}`, `not understood: "{\"a\" 1}": invalid character '1' after object key`},
		"a bracket in text": {"[WARNING] no group\n", `not understood: "[WARNING] no group": invalid character 'W' looking for beginning of value`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := document([]byte(tt.out), "[{")
			var said *TextError
			require.ErrorAs(t, err, &said)
			assert.EqualError(t, err, tt.want)
		})
	}
}

func TestDocumentThatIsCutOffIsAnError(t *testing.T) {
	for _, whole := range []string{"{\"a\": [1, {\"b\": \"c\"}]}", "[\n {\n  \"a\": {\"value\": 1}\n }\n]"} {
		for end := 1; end < len(whole); end++ {
			_, err := document([]byte("warned\n"+whole[:end]), "[{")
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.ErrorContains(t, err, "truncated")
		}
	}
}

// Whatever a tool prints, reading it takes time in proportion.
func TestDocumentIsReadOnce(t *testing.T) {
	const size = 256 << 10
	for name, line := range map[string]string{
		"beginnings":         "[\n",
		"broken beginnings":  "{x\n",
		"lists in lists":     "[[[[\n",
		"numbers of Python":  "[NaN,\n",
		"colours":            "\x1b[0m\n",
		"half of a colour":   "\x1b[\n",
		"space":              "    \n",
		"text":               "text\n",
		"lists of beginning": "[1,1,1,1,1,1,1,1,\n",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, _ = document([]byte(strings.Repeat(line, size/len(line))+"x"), "[{")
			assert.Less(t, time.Since(start), 10*time.Second)
		})
	}
}

func TestMembersOfWhatIsNoObject(t *testing.T) {
	for _, value := range []string{"", "1", `"a"`, "null", "[1]", "{", `{"a"`, `{"a": `} {
		assert.Empty(t, objectOf([]byte(value)), value)
	}
	for _, value := range []string{"", "1", `{"a": 1}`, "[", "[x"} {
		for range elements([]byte(value)) {
			t.Errorf("%q has an element", value)
		}
	}
}

func TestTheLastOfTwoMembersCounts(t *testing.T) {
	o := objectOf([]byte(`{"GPU use ": 1, "gpu use": 2, " Gpu Use": 3}`))
	assert.Equal(t, "3", string(o["gpu use"]))
	assert.Len(t, o, 1)
}

func TestFirstAndLastLine(t *testing.T) {
	assert.Equal(t, "a", firstLine([]byte("\n \x1b[0m\n a \nb\n")))
	assert.Empty(t, firstLine([]byte("\n\x1b[0m\n")))
	assert.Equal(t, "ValueError: no", lastLine([]byte("Traceback:\n ...\n\x1b[31mValueError: no\x1b[0m\n\n")))
	assert.Empty(t, lastLine(nil))
}
