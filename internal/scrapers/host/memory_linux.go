// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// memorySource reads /proc/meminfo.
type memorySource struct {
	slot guard.Slot
	file guard.KeptFile
	buf  []byte
	// isThere looks for the folder of the file: on a dead mount that hangs.
	isThere func(path string) bool
}

// read returns an *scrapers.AbsentError when there is no such machine: nothing
// is mounted below the root path.
func (s *memorySource) read(context.Context) (*memoryReading, error) {
	var err error
	s.buf, err = s.file.ReadInto(s.buf, maxFile)
	if proc := filepath.Dir(s.file.Path); errors.Is(err, fs.ErrNotExist) && !s.isThere(proc) {
		return nil, &scrapers.AbsentError{
			Reason: "no " + proc,
			Cure:   "mount the machine's / with its /proc at root_path",
		}
	}
	if err != nil {
		return nil, err
	}
	m, err := procread.ParseMeminfo(s.buf)
	if err != nil {
		return nil, err
	}
	return &memoryReading{
		total:     m.Total,
		available: m.Available(),
		swapTotal: m.SwapTotal,
		swapUsed:  m.SwapUsed(),
	}, nil
}

// isThere says no only to what certainly is not there.
func isThere(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// statSource reads the CPUs of /proc/stat.
type statSource struct {
	slot guard.Slot
	file guard.KeptFile
	buf  []byte
	cpus []procread.CPU
}

// statReading holds the online logical CPUs.
type statReading struct {
	cpus []procread.CPU
}

func (s *statSource) read(context.Context) (*statReading, error) {
	var err error
	if s.buf, err = s.file.ReadInto(s.buf, maxFile); err != nil {
		return nil, err
	}
	if s.cpus, err = procread.ParseCPUs(s.cpus[:0], s.buf); err != nil {
		return nil, err
	}
	return &statReading{cpus: s.cpus}, nil
}

// addCPUs puts the CPUs' times into the reading where they are wanted, and
// returns how many CPUs are online; 0 means unknown.
func (*linuxSource) addCPUs(r *reading, w want, stat *statReading) int {
	if stat == nil {
		return 0
	}
	if w.cores {
		r.cores = make([]coreReading, 0, len(stat.cpus))
		for _, c := range stat.cpus {
			r.cores = append(r.cores, coreReading{number: c.Number, busy: float64(c.Busy), total: float64(c.Total)})
		}
	}
	return len(stat.cpus)
}
