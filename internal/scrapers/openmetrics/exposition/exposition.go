// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package exposition reads what a Prometheus or OpenMetrics endpoint answers: the
// classic text format, OpenMetrics text and the delimited protobuf format. It knows
// nothing of HTTP, of OpenTelemetry or of earlier scrapes.
//
// A body that is well-formed goes through the parser of Prometheus. One that it
// rejects, or misreads without an error, is read line by line, so that a bad line
// costs that line and not the scrape.
package exposition

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/prometheus/prometheus/model/exemplar"
)

// Type is what a family measures.
type Type uint8

// The types of OpenMetrics. The classic format's "untyped", and a family that
// declares no type, are TypeUnknown.
const (
	TypeUnknown Type = iota
	TypeGauge
	TypeCounter
	TypeInfo
	TypeStateset
	TypeHistogram
	TypeGaugeHistogram
	TypeSummary
)

// typeWords are the words of TYPE lines, of both text formats.
var typeWords = map[string]Type{
	"unknown":        TypeUnknown,
	"untyped":        TypeUnknown,
	"gauge":          TypeGauge,
	"counter":        TypeCounter,
	"info":           TypeInfo,
	"stateset":       TypeStateset,
	"histogram":      TypeHistogram,
	"gaugehistogram": TypeGaugeHistogram,
	"summary":        TypeSummary,
}

// String returns the word of OpenMetrics.
func (t Type) String() string {
	return [...]string{"unknown", "gauge", "counter", "info", "stateset", "histogram", "gaugehistogram", "summary"}[t]
}

// single tells whether a sample of the type is a series of its own.
func (t Type) single() bool { return t <= TypeStateset }

// Scrape is one body. It and its slices are valid until the next
// [Parser.Parse]; the strings stay valid, but one kept for long should be cloned,
// for it keeps the whole body in memory.
type Scrape struct {
	Format Format
	// Families are in the order of their first sample.
	Families []Family
	// TargetInfo are the labels of target_info, which describes the endpoint. Where there
	// are several (Targets), they describe others, whose series the endpoint passes on.
	TargetInfo Labels
	Targets    int
	// Samples are those in the body, each bucket and each quantile counted, and
	// Kept those that passed the filter.
	Samples, Kept int
	// Skipped counts the lines that could not be used, SkippedLines are the first
	// of them.
	Skipped      int
	SkippedLines []SkippedLine
	// NonFinite counts the series of single values that are NaN or infinite. They
	// are in the families, for they take part in numbering series, but have no
	// value to record.
	NonFinite int
	// Duplicates counts the samples that a later one with the same name and labels
	// replaced.
	Duplicates int
	// CreatedFamilies are the families that tell when their series started.
	CreatedFamilies []string
	// GaugeHistograms counts the families left out because OpenTelemetry has
	// nothing like them.
	GaugeHistograms int
	// Malformed counts the histograms and summaries left out because their samples
	// contradict each other, MalformedSeries are the first of them.
	Malformed       int
	MalformedSeries []string
	// ReplacedUTF8 counts the texts with invalid UTF-8, which was replaced.
	ReplacedUTF8 int
	// LongValues counts the label values that are longer than Limits.LabelValue.
	LongValues int
	// MissingEOF tells that an OpenMetrics body lacks its last line: it may be cut.
	MissingEOF bool
}

// SkippedLine is a line that could not be used.
type SkippedLine struct {
	// Line counts from 1; it is 0 in protobuf, which has no lines.
	Line   int
	Reason string
}

// String returns the line and the reason for a message.
func (l SkippedLine) String() string {
	if l.Line == 0 {
		return l.Reason
	}
	return fmt.Sprintf("line %d: %s", l.Line, l.Reason)
}

// Family is the series that share a name and a type. Of its four slices that of its
// type is filled; a histogram may have both kinds.
type Family struct {
	// Name is the sample's name in the classic format (with _total or _info) for
	// single values; for histograms and summaries it is the family's.
	Name string
	Type Type
	// Unit is the word of UNIT, if the name ends in it.
	Unit string
	Help string

	Samples    []Sample
	Histograms []Histogram
	Natives    []NativeHistogram
	Summaries  []Summary

	// declared is where the metadata and the start times are found.
	declared *metric
	// negative tells that a histogram observed values below zero.
	negative bool
}

// Time is a point in time that an exposition may tell.
type Time struct {
	// Millis is in milliseconds since 1970.
	Millis int64
	Known  bool
}

// Sample is a series with a single value.
type Sample struct {
	Labels Labels
	// Value may be NaN or infinite, see [Scrape.NonFinite].
	Value float64
	// Timestamp is the explicit one.
	Timestamp Time
	// Start is when a counter started. It may lie in the future.
	Start    Time
	Exemplar *Exemplar
}

// Histogram is a histogram with explicit bounds.
type Histogram struct {
	Labels           Labels
	Timestamp, Start Time
	Count            uint64
	// Sum may be NaN. It is unknown if the exposition has none, or if the family
	// observes negative values.
	Sum    float64
	HasSum bool
	// Bounds are finite and ascend.
	Bounds []float64
	// Counts are those of each bucket alone, one more than the bounds.
	Counts    []uint64
	Exemplars []Exemplar
}

// NativeHistogram is a histogram with exponential buckets, in OpenTelemetry's terms.
type NativeHistogram struct {
	Labels           Labels
	Timestamp, Start Time
	Count            uint64
	Sum              float64 // as in Histogram
	HasSum           bool
	Scale            int32
	ZeroCount        uint64
	ZeroThreshold    float64
	Positive         ExponentialBuckets
	Negative         ExponentialBuckets
	Exemplars        []Exemplar
}

// ExponentialBuckets are neighbouring buckets of a [NativeHistogram]: Counts[i]
// covers (base^(Offset+i), base^(Offset+i+1)], base being 2^(2^-Scale).
type ExponentialBuckets struct {
	Offset int32
	Counts []uint64
}

// Summary is a series with quantiles.
type Summary struct {
	Labels           Labels
	Timestamp, Start Time
	Count            uint64
	Sum              float64 // it may be NaN
	HasSum           bool
	// Quantiles ascend. Those without a value (NaN) are left out.
	Quantiles []Quantile
}

// Quantile is a value of a [Summary].
type Quantile struct{ Quantile, Value float64 }

// Exemplar is an observation picked out of many.
type Exemplar struct {
	Labels    Labels
	Value     float64
	Timestamp Time
}

// Limits bound what a body may cost. Zero means the default.
type Limits struct {
	// BodySize is in bytes.
	BodySize int
	// Series are counted as Prometheus does, each bucket and each quantile too, after
	// the filter.
	Series int
	// Labels are those of one series; a line with more is bad.
	Labels int
	// LabelValue is how many bytes of a label's value should be shown, see
	// [Limits.Shown].
	LabelValue int
	// Name is the length of a metric's name in bytes; a line with more is bad.
	Name int
}

// DefaultLimits returns 16 MiB, 10,000 series, 64 labels, and 4096 and 512 bytes.
func DefaultLimits() Limits {
	return Limits{BodySize: 16 << 20, Series: 10_000, Labels: 64, LabelValue: 4096, Name: 512}
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	for _, of := range []struct{ limit, or *int }{
		{&l.BodySize, &d.BodySize},
		{&l.Series, &d.Series},
		{&l.Labels, &d.Labels},
		{&l.LabelValue, &d.LabelValue},
		{&l.Name, &d.Name},
	} {
		if *of.limit <= 0 {
			*of.limit = *of.or
		}
	}
	return l
}

// Shown returns what of a label's value should be shown: all of it, or whole
// characters of its beginning. A series is still told from others by all of it.
func (l Limits) Shown(value string) string {
	if len(value) <= l.LabelValue {
		return value
	}
	// The cut may leave a part of a character at the end, and only there.
	return strings.ToValidUTF8(value[:l.LabelValue], "")
}

// The limits' names in the configuration.
const (
	keyBodySize = "max_body_size"
	keySeries   = "max_series"
)

// LimitError tells that a body is over a limit for whole bodies. Such a scrape
// fails, for a part of it would be a random one.
type LimitError struct {
	// Key is the limit's name in the configuration.
	Key   string
	Limit int
	what  string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s (%s: %d)", e.what, e.Key, e.Limit)
}

// Options change how a body is read.
type Options struct {
	// Strict makes anything wrong with a body fail its scrape.
	Strict bool
	Limits Limits
}

// Keep tells whether a series is wanted. It gets the name of [Family.Name] and the
// labels, without le and quantile, which it must not keep. It may be asked
// several times for the same series.
type Keep func(name string, labels Labels) bool

// Parser reads bodies. It is meant for one endpoint: it keeps the memory of one
// scrape for the next. It is not safe for concurrent use.
type Parser struct {
	strict bool
	limits Limits
	keep   Keep

	text string // the body
	// end is where its samples end.
	end  int
	scan scanner
	out  Scrape
	// described tells that the body has metadata, or the mark of its end.
	described bool
	// crowded tells that it describes too many names.
	crowded bool
	series  int

	names     names
	places    map[uint64]place
	starts    map[uint64]int64
	seed      maphash.Seed
	key       []byte
	labels    []Label
	parts     []part
	points    []point
	bounds    []float64
	counts    []uint64
	quantiles []Quantile
	dropped   map[*metric]struct{}
	// exemplar is textparse's, kept so that it need not be made for each sample.
	exemplar exemplar.Exemplar
}

// New returns a parser.
func New(o Options) *Parser {
	limits := o.Limits.orDefault()
	return &Parser{
		strict:  o.Strict,
		limits:  limits,
		scan:    scanner{limits: limits},
		names:   names{byName: map[string]*metric{}},
		places:  map[uint64]place{},
		starts:  map[uint64]int64{},
		dropped: map[*metric]struct{}{},
		seed:    maphash.MakeSeed(),
	}
}

// Limits returns the limits in use.
func (p *Parser) Limits() Limits { return p.limits }

// Parse reads a body as its Content-Type says, and what the body looks like if that
// says nothing; see [Scrape] for how long the result is valid. A nil keep keeps
// everything. The errors are those of a scrape that failed as a whole: a
// [LimitError], a body that is no exposition, a malformed protobuf body, and, in
// strict mode, anything wrong.
func (p *Parser) Parse(body []byte, contentType string, keep Keep) (*Scrape, error) {
	if len(body) > p.limits.BodySize {
		return nil, &LimitError{Key: keyBodySize, Limit: p.limits.BodySize, what: "the body is too large"}
	}
	if keep == nil {
		keep = func(string, Labels) bool { return true }
	}
	p.keep = keep
	// The labels are parts of this one string, so that none costs an allocation,
	// here or in what is made of them.
	p.text = string(body)
	format, err := formatOf(contentType, p.text)
	if err != nil {
		return nil, err
	}
	if err := p.read(format, body); err != nil {
		return nil, err
	}
	if err := p.verdict(); err != nil {
		return nil, err
	}
	return &p.out, nil
}

func (p *Parser) read(format Format, body []byte) error {
	if format == Protobuf {
		return p.readProtobuf(body)
	}
	return p.readText(format, body)
}

// begin forgets the last scrape, and keeps its memory.
func (p *Parser) begin(format Format) {
	families := p.out.Families
	skipped, malformed, created := p.out.SkippedLines, p.out.MalformedSeries, p.out.CreatedFamilies
	p.out = Scrape{
		Format:          format,
		Families:        families[:0],
		SkippedLines:    skipped[:0],
		MalformedSeries: malformed[:0],
		CreatedFamilies: created[:0],
	}
	p.described, p.crowded, p.series = false, false, 0
	p.scan.begin(format)
	p.names.begin(format)
	clear(p.places)
	clear(p.starts)
	clear(p.dropped)
	p.labels, p.parts, p.points = p.labels[:0], p.parts[:0], p.points[:0]
	p.bounds, p.counts, p.quantiles = p.bounds[:0], p.counts[:0], p.quantiles[:0]
}

// verdict tells why a body that was read is a failed scrape nevertheless.
func (p *Parser) verdict() error {
	s := &p.out
	nothing := s.Samples == 0 && !p.described
	if nothing && strings.Trim(p.text, bom+" \t\r\n") != "" {
		return fmt.Errorf("the body has no metrics, it begins with %q", beginning(p.text, shownBody))
	}
	if !p.strict {
		return nil
	}
	switch {
	case s.Skipped > 0:
		return errors.New(s.SkippedLines[0].String())
	case s.MissingEOF:
		return errNoEOF
	case s.Malformed > 0:
		return fmt.Errorf("malformed series %s", s.MalformedSeries[0])
	case s.ReplacedUTF8 > 0:
		return errUTF8
	}
	return nil
}
