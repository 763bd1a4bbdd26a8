// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// tpuRuntime is the metric service of a training process: a gRPC server that writes its
// answers field by field, by their numbers on the wire, without any code of the
// collector.
type tpuRuntime struct {
	address string
	server  *grpc.Server

	mu sync.Mutex
	// readings are by the runtime's name of a metric.
	readings map[string][]message
	// fault is answered to all questions, where it is set; stuck holds answers back.
	fault error
	stuck chan struct{}
	asked int
}

const tpuService = "/tpu.monitoring.runtime.RuntimeMetricService/"

// startTPURuntime serves on an address, 127.0.0.1:0 for any.
func startTPURuntime(t *testing.T, address string, readings map[string][]message) *tpuRuntime {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	r := &tpuRuntime{address: listener.Addr().String(), readings: readings}
	r.server = grpc.NewServer(grpc.ForceServerCodec(plainCodec{}), grpc.UnknownServiceHandler(r.serve))
	go func() { _ = r.server.Serve(listener) }()
	t.Cleanup(r.server.Stop)
	return r
}

// plainCodec leaves messages as they are on the wire.
type plainCodec struct{}

func (plainCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (plainCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (plainCodec) Name() string { return "proto" }

// serve answers a question.
func (r *tpuRuntime) serve(_ any, stream grpc.ServerStream) error {
	var question []byte
	if err := stream.RecvMsg(&question); err != nil {
		return err
	}
	method, _ := grpc.MethodFromServerStream(stream)
	r.mu.Lock()
	r.asked++
	stuck, fault := r.stuck, r.fault
	answer, known := r.answer(method, question)
	r.mu.Unlock()
	if stuck != nil {
		select {
		case <-stuck:
		case <-stream.Context().Done():
		}
	}
	if fault == nil && !known {
		fault = status.Errorf(codes.NotFound, "no answer to %s", method)
	}
	if fault != nil {
		return fault
	}
	return stream.SendMsg((*[]byte)(&answer))
}

// answer is that to a question; r.mu is held.
func (r *tpuRuntime) answer(method string, question []byte) (message, bool) {
	switch method {
	case tpuService + "ListSupportedMetrics":
		var list message
		for name := range r.readings {
			list = list.message(1, message(nil).text(name))
		}
		return list, true
	case tpuService + "GetRuntimeMetric":
		readings, ok := r.readings[firstText(question)]
		metric := message(nil).text(firstText(question))
		for _, reading := range readings {
			metric = metric.message(3, reading)
		}
		return message(nil).message(1, metric), ok
	}
	return nil, false
}

// firstText is field 1 of a message.
func firstText(b []byte) string {
	number, kind, n := protowire.ConsumeTag(b)
	if number != 1 || kind != protowire.BytesType {
		return ""
	}
	text, _ := protowire.ConsumeString(b[n:])
	return text
}

func (r *tpuRuntime) change(how func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how()
}

func (r *tpuRuntime) questions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// message is one of protobuf, to which each method adds a field.
type message []byte

// text adds field 1, as all texts here have.
func (m message) text(s string) message {
	return protowire.AppendString(protowire.AppendTag(m, 1, protowire.BytesType), s)
}

func (m message) message(field protowire.Number, sub message) message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), sub)
}

func (m message) whole(field protowire.Number, v int) message {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), uint64(v))
}

func (m message) double(field protowire.Number, v float64) message {
	return protowire.AppendFixed64(protowire.AppendTag(m, field, protowire.Fixed64Type), math.Float64bits(v))
}

// tpuDevice is the attribute of a device, or chip.
func tpuDevice(id int) message {
	return message(nil).message(1, message(nil).text("device-id").message(2, message(nil).whole(3, id)))
}

// tpuList is an attribute of several texts.
func tpuList(pairs ...string) message {
	var list message
	for i := 0; i+1 < len(pairs); i += 2 {
		list = list.message(1, message(nil).text(pairs[i]).message(2, message(nil).text(pairs[i+1])))
	}
	return message(nil).message(1, message(nil).text("attributes").message(2, message(nil).message(6, list)))
}

// doubles and wholes are readings of devices, whose ids count from first.
func doubles(first int, values ...float64) []message {
	var all []message
	for i, v := range values {
		all = append(all, tpuDevice(first+i).message(3, message(nil).double(1, v)))
	}
	return all
}

func wholes(first int, values ...int) []message {
	var all []message
	for i, v := range values {
		all = append(all, tpuDevice(first+i).message(3, message(nil).whole(2, v)))
	}
	return all
}

// distributed is a reading of a distribution with the bounds 10 and 20, and nothing
// above them.
func distributed(attribute message, mean float64, below, between int) message {
	var bounds, counts message
	for _, b := range []float64{10, 20} {
		bounds = protowire.AppendFixed64(bounds, math.Float64bits(b))
	}
	for _, n := range []int{below, between, 0} {
		counts = protowire.AppendVarint(counts, uint64(n))
	}
	options := message(nil).message(3, message(nil).message(1, bounds))
	return attribute.message(5, message(nil).whole(1, below+between).double(2, mean).message(6, options).message(7, counts))
}

// addTPUs puts chips on the machine's PCI bus: v6e, which have one device each.
func (n *node) addTPUs(chips int) {
	n.t.Helper()
	for i := range chips {
		folder := fmt.Sprintf("sys/bus/pci/devices/0000:00:%02x.0/", 4+i)
		for name, content := range map[string]string{"vendor": "0x1ae0", "device": "0x006f", "subsystem_device": "0x0000", "class": "0x120000"} {
			n.write(folder+name, content+"\n")
		}
	}
}

// tpuReceiver is a section that measures the machine of files and its TPUs.
func (n *node) tpuReceiver(name, section, more string) string {
	return fmt.Sprintf("wandbsys/%s: {host_name: %s, root_path: %s, collection_interval: %s, detection_interval: %[4]s, initial_delay: 0s, scrapers: {host: , %s}, %s}\n",
		name, name, n.root, deviceInterval, section, more)
}

// ofTPUs keeps points of TPUs.
func (ps points) ofTPUs() points {
	return ps.filter(func(p point) bool { return strings.HasPrefix(p.name, "tpu.") })
}

// buildLibtpu makes a libtpu.so, the double of the reader's own tests, that tells of
// metrics. Definitions say what is wrong with it.
func buildLibtpu(t *testing.T, metrics map[string][]string, definitions ...string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("gcc is needed")
		}
		t.Skip("gcc is missing")
	}
	folder := publicDir(t)
	var lists, table strings.Builder
	number := 0
	for name, values := range metrics {
		fmt.Fprintf(&lists, "static const char *values%d[] = {", number)
		for _, v := range values {
			lists.WriteString(strconv.Quote(v) + ", ")
		}
		lists.WriteString("NULL};\n")
		fmt.Fprintf(&table, "{%q, \"\", NULL, %d, values%d},\n", name, len(values), number)
		number++
	}
	header, symbols, library := filepath.Join(folder, "metrics.h"), filepath.Join(folder, "symbols"), filepath.Join(folder, "libtpu.so")
	writeFile(t, header, lists.String()+"static const struct metric metrics[] = {\n"+table.String()+"{NULL},\n};\n")
	writeFile(t, symbols, "VERS_1.0 { global: GetLibtpuSdkApi; local: *; };\n")
	args := []string{
		"-w", "-O1", "-shared", "-fPIC", "-o", library, repo(t, "internal", "scrapers", "tpu", "tputest", "testdata", "libtpu.c"),
		"-Wl,--version-script," + symbols, "-DMETRICS=" + strconv.Quote(header),
	}
	for _, d := range definitions {
		args = append(args, "-D"+d)
	}
	out, err := exec.Command("gcc", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return library
}
