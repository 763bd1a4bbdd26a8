// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	mebi = 1 << 20
	gibi = 1 << 30
	// ticksPerSecond is USER_HZ.
	ticksPerSecond = 100
	sectorSize     = 512
)

// truth is what the machine says of itself, read without the product's code.
type truth struct {
	at                       time.Time
	memTotal, memAvailable   float64 // bytes
	diskIn, diskOut          map[string]float64
	received, sent, loopback float64
	fsUsed, fsPercent        map[string]float64
	process                  processTruth
}

// processTruth is what /proc/PID says.
type processTruth struct {
	cpu      time.Duration
	threads  float64
	rss      float64
	capacity float64
}

// readTruth reads everything; pid 0 means no process.
func readTruth(t *testing.T, pid int, paths ...string) truth {
	t.Helper()
	tr := truth{at: time.Now(), fsUsed: map[string]float64{}, fsPercent: map[string]float64{}}
	tr.readMemory(t)
	tr.readDisks(t)
	tr.readNetwork(t)
	for _, path := range paths {
		tr.readFilesystem(t, path)
	}
	if pid > 0 {
		tr.process = readProcess(t, pid)
	}
	return tr
}

// fieldsOf returns the fields of each line of a file.
func fieldsOf(t *testing.T, path string) [][]string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var lines [][]string
	for line := range strings.Lines(string(content)) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return n
}

func (tr *truth) readMemory(t *testing.T) {
	t.Helper()
	for _, f := range fieldsOf(t, "/proc/meminfo") {
		switch f[0] {
		case "MemTotal:":
			tr.memTotal = number(t, f[1]) * 1024
		case "MemAvailable:":
			tr.memAvailable = number(t, f[1]) * 1024
		}
	}
}

// readDisks takes whole disks: sysfs knows a device behind them and no number
// of a partition.
func (tr *truth) readDisks(t *testing.T) {
	t.Helper()
	tr.diskIn, tr.diskOut = map[string]float64{}, map[string]float64{}
	noDisk := regexp.MustCompile(`^(sr\d|fd\d|nvme\d+c|mmcblk\d+(boot|rpmb))`)
	for _, f := range fieldsOf(t, "/proc/diskstats") {
		entry := "/sys/class/block/" + f[2]
		if noDisk.MatchString(f[2]) || !exists(entry+"/device") || exists(entry+"/partition") {
			continue
		}
		tr.diskIn[f[2]] = number(t, f[5]) * sectorSize
		tr.diskOut[f[2]] = number(t, f[9]) * sectorSize
	}
}

// readNetwork takes interfaces with a device behind them; without any, all but
// the loopback.
func (tr *truth) readNetwork(t *testing.T) {
	t.Helper()
	physical := false
	lines := fieldsOf(t, "/proc/1/net/dev")[2:]
	for _, f := range lines {
		physical = physical || exists("/sys/class/net/"+strings.TrimSuffix(f[0], ":")+"/device")
	}
	for _, f := range lines {
		name := strings.TrimSuffix(f[0], ":")
		in, out := number(t, f[1]), number(t, f[9])
		switch {
		case name == "lo":
			tr.loopback = in
		case !physical || exists("/sys/class/net/"+name+"/device"):
			tr.received += in
			tr.sent += out
		}
	}
}

func (tr *truth) readFilesystem(t *testing.T, path string) {
	t.Helper()
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(path, &st))
	used := float64(st.Blocks-st.Bfree) * float64(st.Frsize)
	available := float64(st.Bavail) * float64(st.Frsize)
	tr.fsUsed[path] = used
	tr.fsPercent[path] = 100 * used / (used + available)
}

func readProcess(t *testing.T, pid int) processTruth {
	t.Helper()
	dir := "/proc/" + strconv.Itoa(pid)
	content, err := os.ReadFile(dir + "/stat")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(content), ") ")
	f := strings.Fields(rest) // the first is field 3
	ticks := number(t, f[11]) + number(t, f[12])
	return processTruth{
		cpu:      time.Duration(ticks) * time.Second / ticksPerSecond,
		threads:  number(t, f[17]),
		rss:      number(t, fieldsOf(t, dir+"/statm")[0][1]) * float64(os.Getpagesize()),
		capacity: allowedCPUs(t, pid),
	}
}

// allowedCPUs asks the kernel directly, not /proc.
func allowedCPUs(t *testing.T, pid int) float64 {
	t.Helper()
	var set unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(pid, &set))
	return float64(set.Count())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func sum(m map[string]float64) float64 {
	total := 0.0
	for _, v := range m {
		total += v
	}
	return total
}

// diskOf returns the whole disk that holds a path, and why there is none.
func diskOf(t *testing.T, path string) (name, why string) {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	if unix.Major(st.Dev) == 0 {
		return "", "no block device of its own holds " + path
	}
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return "", err.Error()
	}
	if exists(filepath.Join("/sys/dev/block", link, "partition")) {
		link = filepath.Dir(link)
	}
	name = filepath.Base(link)
	if !exists("/sys/class/block/" + name + "/device") {
		return "", path + " is on " + name + ", which is no disk"
	}
	return name, ""
}
