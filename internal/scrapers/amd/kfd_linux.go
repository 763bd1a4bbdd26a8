// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

const kfdProcesses = "sys/class/kfd/kfd/proc"

// maxProcesses bounds the processes that are looked at.
const maxProcesses = 4096

func (p *kfdProcess) gpu(id uint64) *kfdGPU {
	for i := range p.gpus {
		if p.gpus[i].id == id {
			return &p.gpus[i]
		}
	}
	p.gpus = append(p.gpus, kfdGPU{id: id})
	return &p.gpus[len(p.gpus)-1]
}

// kfdReader reads the processes of the KFD, which anybody may. Their pids are the
// machine's, in a container too.
type kfdReader struct {
	dir string
	buf []byte
}

// read lists the processes. That the driver has none is no error.
func (k *kfdReader) read() ([]kfdProcess, error) {
	entries, err := os.ReadDir(k.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the processes of the KFD: %w", err)
	}
	var all []kfdProcess
	for _, e := range entries {
		pid, err := strconv.ParseUint(e.Name(), 10, 31)
		if err != nil || len(all) == maxProcesses {
			continue
		}
		p := kfdProcess{pid: int(pid)}
		k.readProcess(&p, k.dir+"/"+e.Name())
		all = append(all, p)
	}
	return all, nil
}

// readProcess reads what a process has. One that ends meanwhile has nothing.
func (k *kfdReader) readProcess(p *kfdProcess, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "vram_")
		id, err := strconv.ParseUint(digits, 10, 64)
		if !ok || err != nil {
			continue
		}
		if n, ok := k.number(dir + "/" + e.Name()); ok && n > 0 {
			p.gpu(id).memory = n
		}
	}
	queues, err := os.ReadDir(dir + "/queues")
	if err != nil {
		return
	}
	for _, q := range queues {
		if id, ok := k.number(dir + "/queues/" + q.Name() + "/gpuid"); ok && id > 0 {
			p.gpu(uint64(id)).queue = true
		}
	}
}

func (k *kfdReader) number(path string) (int64, bool) {
	content, err := guard.ReadInto(path, k.buf, maxText)
	k.buf = content
	if err != nil {
		return 0, false
	}
	return parseNumber(bytes.TrimSpace(content))
}

// useOf adds up what the processes have.
func useOf(all []kfdProcess) *kfdUse {
	use := &kfdUse{byGPU: map[uint64]int64{}}
	for i := range all {
		for _, g := range all[i].gpus {
			use.byGPU[g.id] += g.memory
		}
	}
	return use
}
