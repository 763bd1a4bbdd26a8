// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"errors"
	"fmt"
	"mime"
	"strings"
)

// Format is how a body is written.
type Format uint8

// The formats. Protobuf is a sequence of MetricFamily messages, each after its
// length.
const (
	Classic Format = iota
	OpenMetrics
	Protobuf
)

// String returns the format's name in messages.
func (f Format) String() string {
	return [...]string{"classic text", "OpenMetrics", "protobuf"}[f]
}

const (
	// bom is a byte order mark.
	bom = "\uFEFF"
	// shownBody is how many bytes of a body, shownWord of a part of a line and
	// shownError of another error a message shows.
	shownBody  = 60
	shownWord  = 40
	shownError = 200
	eofLine    = "# EOF"
)

var (
	errHTML  = errors.New("the endpoint answered with an HTML page and not with metrics")
	errNoEOF = errors.New("the OpenMetrics body does not end with # EOF, it may be cut off")
	errUTF8  = errors.New("the body has invalid UTF-8")
)

// formatOf decides how to read a body: by its Content-Type, else by its looks. The
// error says that it is no exposition.
func formatOf(contentType, text string) (Format, error) {
	// A parameter that is malformed leaves the type.
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return sniff(text)
	}
	switch media {
	case "application/openmetrics-text":
		return OpenMetrics, nil
	case "application/vnd.google.protobuf":
		return protobufFormat(params)
	case "text/html":
		return 0, errHTML
	case "text/plain":
		if v := params["version"]; v == "0.0.4" || v == "1.0.0" {
			return Classic, nil
		}
	}
	return sniff(text)
}

func protobufFormat(params map[string]string) (Format, error) {
	if p := params["proto"]; p != "" && p != "io.prometheus.client.MetricFamily" {
		return 0, fmt.Errorf("the endpoint answered with messages of type %q", beginning(p, shownWord))
	}
	if e := params["encoding"]; e != "" && e != "delimited" {
		return 0, fmt.Errorf("the endpoint answered with protobuf in encoding %q, only delimited is supported", beginning(e, shownWord))
	}
	return Protobuf, nil
}

// sniff tells the text formats, and HTML pages, from each other.
func sniff(text string) (Format, error) {
	text = strings.Trim(strings.TrimPrefix(text, bom), " \t\r\n")
	if strings.HasPrefix(text, "<") {
		return 0, errHTML
	}
	if text[strings.LastIndexByte(text, '\n')+1:] == eofLine {
		return OpenMetrics, nil
	}
	return Classic, nil
}

// beginning returns the first n bytes of a text, as far as they are whole characters.
func beginning(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
