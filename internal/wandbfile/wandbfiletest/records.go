// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfiletest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// idForm is what a run's id may be.
const idForm = `[A-Za-z0-9_-]+`

var wholeID = regexp.MustCompile(`^` + idForm + `$`)

// decode reads the payload as a Record message.
func (r *raw) decode() (Record, error) {
	record := Record{Offset: int64(r.offset)}
	err := message{data: r.payload}.read(
		integer(1, "num", &record.Num),
		sub(7, "stats", into(&record.Stats)),
		sub(17, "run", into(&record.Run)),
		sub(18, "exit", into(&record.Exit)),
		sub(21, "header", into(&record.Header)),
		sub(26, "environment", into(&record.Environment)),
	)
	if f, ok := errors.AsType[*fault](err); ok {
		return Record{}, fmt.Errorf("byte %d: %w", r.locate(f.at), f)
	}
	if _, err := record.rank(); err != nil {
		return Record{}, fmt.Errorf("byte %d: %w", r.offset, err)
	}
	return record, nil
}

// readable is a pointer to a struct that a message is read into.
type readable[T any] interface {
	*T
	read(m message) error
}

// into reads a message into a new struct.
func into[T any, P readable[T]](to *P) func(message) error {
	return func(m message) error {
		*to = new(T)
		return (*to).read(m)
	}
}

// onto reads a message into another element of a slice.
func onto[T any, P readable[T]](to *[]T) func(message) error {
	return func(m message) error {
		var element T
		if err := P(&element).read(m); err != nil {
			return err
		}
		*to = append(*to, element)
		return nil
	}
}

func (h *Header) read(m message) error {
	return m.read(sub(1, "version_info", func(m message) error {
		return m.read(text(1, "producer", &h.Producer), text(2, "min_consumer", &h.MinConsumer))
	}))
}

func (r *Run) read(m message) error {
	err := m.read(
		text(1, "run_id", &r.ID),
		text(2, "entity", &r.Entity),
		text(3, "project", &r.Project),
		sub(4, "config", func(m message) error { return m.read(many(1, "update", onto(&r.Config))) }),
		text(6, "run_group", &r.Group),
		text(7, "job_type", &r.JobType),
		text(8, "display_name", &r.DisplayName),
		text(9, "notes", &r.Notes),
		texts(10, "tags", &r.Tags),
		text(13, "host", &r.Host),
		when(17, "start_time", &r.StartTime),
	)
	if err != nil {
		return err
	}
	if !wholeID.MatchString(r.ID) {
		return within("run_id", m.at, fmt.Errorf("%q is not an id", r.ID))
	}
	if r.StartTime.IsZero() {
		return within("start_time", m.at, errors.New("not set"))
	}
	for i, item := range r.Config {
		if !json.Valid([]byte(item.Value)) {
			return within(fmt.Sprintf("config.update[%d].value_json", i), m.at, fmt.Errorf("not JSON: %q", item.Value))
		}
	}
	return nil
}

func texts(number protowire.Number, name string, to *[]string) field {
	var one string
	f := text(number, name, &one)
	set := f.set
	f.repeated, f.set = true, func(v value) error {
		err := set(v)
		*to = append(*to, one)
		return err
	}
	return f
}

func (i *Item) read(m message) error {
	return m.read(text(1, "key", &i.Key), text(16, "value_json", &i.Value))
}

func (s *Stats) read(m message) error {
	keys := make(map[string]bool)
	err := m.read(
		integer(1, "stats_type", &s.Type),
		when(2, "timestamp", &s.Timestamp),
		many(3, "item", func(m message) error {
			if err := onto(&s.Items)(m); err != nil {
				return err
			}
			item := s.Items[len(s.Items)-1]
			if item.Key == "" || keys[item.Key] {
				return within("key", m.at, fmt.Errorf("%q is empty or there twice", item.Key))
			}
			keys[item.Key] = true
			if !isNumber(item.Value) {
				return within("value_json", m.at, fmt.Errorf("not a JSON number: %q", item.Value))
			}
			return nil
		}),
	)
	if err != nil {
		return err
	}
	if s.Type != 0 {
		return within("stats_type", m.at, fmt.Errorf("%d", s.Type))
	}
	if s.Timestamp.IsZero() {
		return within("timestamp", m.at, errors.New("not set"))
	}
	return nil
}

// isNumber tells whether a text is a number of JSON that a float64 can hold.
func isNumber(s string) bool {
	if !json.Valid([]byte(s)) || strings.Trim(s, "+-.0123456789Ee") != "" {
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

func (e *Exit) read(m message) error {
	if err := m.read(integer(1, "exit_code", &e.Code), integer(2, "runtime", &e.Runtime)); err != nil {
		return err
	}
	if e.Runtime < 0 {
		return within("runtime", m.at, fmt.Errorf("%d is negative", e.Runtime))
	}
	return nil
}

func (e *Environment) read(m message) error {
	return m.read(
		text(1, "os", &e.OS),
		when(3, "started_at", &e.StartedAt),
		text(12, "host", &e.Host),
		integer(16, "cpu_count", &e.CPUCount),
		integer(17, "cpu_count_logical", &e.CPUCountLogical),
		text(18, "gpu_type", &e.GPUType),
		integer(19, "gpu_count", &e.GPUCount),
		table(20, "disk", &e.Disk, func(d *Disk) field { return sub(2, "value", d.read) }),
		sub(21, "memory", into(&e.Memory)),
		sub(23, "apple", into(&e.Apple)),
		many(24, "gpu_nvidia", onto(&e.GPUNvidia)),
		text(25, "cuda_version", &e.CUDAVersion),
		many(26, "gpu_amd", onto(&e.GPUAMD)),
		table(27, "slurm", &e.Slurm, func(s *string) field { return text(2, "value", s) }),
		sub(28, "trainium", into(&e.Trainium)),
		sub(29, "tpu", into(&e.TPU)),
	)
}

func (d *Disk) read(m message) error {
	return m.read(integer(1, "total", &d.Total), integer(2, "used", &d.Used))
}

func (y *Memory) read(m message) error { return m.read(integer(1, "total", &y.Total)) }

func (a *Apple) read(m message) error {
	return m.read(
		text(1, "name", &a.Name),
		integer(2, "ecpu_cores", &a.ECPUCores),
		integer(3, "pcpu_cores", &a.PCPUCores),
		integer(4, "gpu_cores", &a.GPUCores),
		integer(5, "memory_gb", &a.MemoryGB),
	)
}

func (g *NvidiaGPU) read(m message) error {
	return m.read(
		text(1, "name", &g.Name),
		integer(2, "memory_total", &g.MemoryTotal),
		integer(3, "cuda_cores", &g.CUDACores),
		text(4, "architecture", &g.Architecture),
		text(5, "uuid", &g.UUID),
	)
}

func (g *AMDGPU) read(m message) error {
	return m.read(
		text(1, "id", &g.ID),
		text(2, "unique_id", &g.UniqueID),
		text(8, "series", &g.Series),
		text(9, "model", &g.Model),
		text(10, "vendor", &g.Vendor),
	)
}

func (t *Trainium) read(m message) error {
	return m.read(
		text(1, "name", &t.Name),
		text(2, "vendor", &t.Vendor),
		integer(3, "neuron_device_count", &t.NeuronDeviceCount),
		integer(4, "neuroncore_per_device_count", &t.NeuroncorePerDeviceCount),
	)
}

func (t *TPU) read(m message) error {
	return m.read(
		text(1, "name", &t.Name),
		integer(2, "hbm_gib", &t.HBMGiB),
		integer(3, "devices_per_chip", &t.DevicesPerChip),
		integer(4, "count", &t.Count),
	)
}
