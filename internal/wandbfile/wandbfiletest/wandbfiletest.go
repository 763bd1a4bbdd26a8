// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package wandbfiletest reads W&B transaction logs for tests. It shares nothing with
// the code that writes them, so that a mistake there is not repeated here.
//
// The file: 7 bytes of header, then blocks of 32,768 bytes that count from the start
// of the file. A record is one chunk or several, none of which crosses a block; a chunk
// is a checksum, a length, a type and its payload. A rest of a block that is too short
// for a chunk's header is zeros.
package wandbfiletest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// File is a transaction log.
type File struct {
	Records []Record
	// Truncated says that the file ends within its header or that bytes of an
	// unfinished record, or the zeros before one, follow the last whole record.
	Truncated bool
	// Good is the offset after the last whole record, in bytes.
	Good int64
}

// Record is one record; the field of its kind is not nil.
type Record struct {
	// Offset is where the first chunk's header starts, in bytes.
	Offset int64
	// Num is the record's number: 1, 2, 3...
	Num int64

	Header      *Header
	Run         *Run
	Environment *Environment
	Stats       *Stats
	Exit        *Exit
}

// Header is the version_info of a HeaderRecord.
type Header struct {
	Producer    string
	MinConsumer string
}

// Run is a RunRecord.
type Run struct {
	ID          string
	Entity      string
	Project     string
	Config      []Item
	Group       string
	JobType     string
	DisplayName string
	Notes       string
	Tags        []string
	Host        string
	StartTime   time.Time
}

// Item is a key with its value as JSON text.
type Item struct {
	Key, Value string
}

// Environment is an EnvironmentRecord. Times that are not in it are zero.
type Environment struct {
	OS              string
	StartedAt       time.Time
	Host            string
	CPUCount        uint32
	CPUCountLogical uint32
	GPUType         string
	GPUCount        uint32
	Disk            map[string]Disk // by mount point
	Memory          *Memory
	Apple           *Apple
	GPUNvidia       []NvidiaGPU
	CUDAVersion     string
	GPUAMD          []AMDGPU
	Slurm           map[string]string
	Trainium        *Trainium
	TPU             *TPU
}

// Disk is a disk of an Environment, in bytes.
type Disk struct {
	Total, Used uint64
}

// Memory is the memory of an Environment, in bytes.
type Memory struct {
	Total uint64
}

// Apple is the Apple chip of an Environment.
type Apple struct {
	Name                           string
	ECPUCores, PCPUCores, GPUCores uint32
	MemoryGB                       uint32
}

// NvidiaGPU is an NVIDIA GPU of an Environment; its memory is in bytes.
type NvidiaGPU struct {
	Name         string
	MemoryTotal  uint64
	CUDACores    uint32
	Architecture string
	UUID         string
}

// AMDGPU is an AMD GPU of an Environment.
type AMDGPU struct {
	ID, UniqueID          string
	Series, Model, Vendor string
}

// Trainium is the Trainium machine of an Environment.
type Trainium struct {
	Name, Vendor             string
	NeuronDeviceCount        uint32
	NeuroncorePerDeviceCount uint32
}

// TPU is the TPU of an Environment.
type TPU struct {
	Name           string
	HBMGiB         uint32
	DevicesPerChip uint32
	Count          uint32
}

// Stats is a StatsRecord.
type Stats struct {
	Type      int32 // 0: system metrics, which are all that is read
	Timestamp time.Time
	Items     []Item
}

// Exit is a RunExitRecord.
type Exit struct {
	Code    int32
	Runtime int32 // in seconds
}

// ReadFile parses a file.
func ReadFile(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a transaction log: %w", err)
	}
	f, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", path, err)
	}
	return f, nil
}

// Sample is one value of a series.
type Sample struct {
	Time  time.Time
	Value float64
	Text  string // the value as it was written
}

// Series returns the samples of each key, in the order of the files and of their
// records. The files are as Parse or ReadFile returned them.
func Series(files ...*File) map[string][]Sample {
	series := make(map[string][]Sample)
	for _, f := range files {
		for _, r := range f.Records {
			r.Stats.addTo(series)
		}
	}
	return series
}

// Texts returns the values of a key as they were written, in the order of [Series].
func Texts(key string, files ...*File) (texts []string) {
	for _, sample := range Series(files...)[key] {
		texts = append(texts, sample.Text)
	}
	return texts
}

func (s *Stats) addTo(series map[string][]Sample) {
	if s == nil {
		return
	}
	for _, i := range s.Items {
		value, _ := strconv.ParseFloat(i.Value, 64) // is a number: Parse has looked
		series[i.Key] = append(series[i.Key], Sample{Time: s.Timestamp, Value: value, Text: i.Value})
	}
}

// kinds are the records' names in the order in which they stand in a file.
var kinds = []string{"header", "run", "environment", "stats", "exit"}

// rank is the place of a record in kinds, or an error unless it is of one kind.
func (r *Record) rank() (int, error) {
	found := -1
	for i, present := range []bool{r.Header != nil, r.Run != nil, r.Environment != nil, r.Stats != nil, r.Exit != nil} {
		switch {
		case !present:
		case found >= 0:
			return 0, fmt.Errorf("both %s and %s", kinds[found], kinds[i])
		default:
			found = i
		}
	}
	if found < 0 {
		return 0, errors.New("of no kind")
	}
	return found, nil
}
