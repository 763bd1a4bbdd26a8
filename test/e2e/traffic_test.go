// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"bufio"
	native "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// trafficInterface has a name that the product counts where there is no /sys.
const trafficInterface = "eth0"

func init() { treeRoles["traffic"] = runTraffic }

// startTraffic runs a helper with an interface in a network namespace of its own.
func startTraffic(t *testing.T, attr *syscall.SysProcAttr) (*process, io.Writer) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(cleanEnv(), helperKey+"=traffic")
	cmd.SysProcAttr = attr
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	p := startProcess(t, cmd)
	t.Cleanup(func() { _ = input.Close() })
	p.waitForOrEnd("the interface", func() bool { return strings.Contains(p.stdout.String(), "ready") })
	if !p.alive() && p.exitCode() == notPermitted {
		t.Skip(strings.TrimSpace(p.stderr.String()))
	}
	return p, input
}

func runTraffic() {
	if err := addInterface(trafficInterface); err != nil {
		fmt.Fprintln(os.Stderr, "not permitted:", err)
		os.Exit(notPermitted)
	}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	_, _ = in.ReadString('\n')
	if err := sendFrames(trafficInterface, foreign); err != nil {
		panic(err)
	}
	fmt.Println("sent")
	_, _ = io.Copy(io.Discard, in)
}

// addInterface makes an interface that counts what is sent and drops it. Which
// kinds there are depends on the kernel.
func addInterface(name string) error {
	var errs []error
	for _, kind := range []string{"dummy", "ifb", "bridge"} {
		err := addLink(name, kind)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("an interface of kind %s: %w", kind, err))
	}
	return errors.Join(errs...)
}

func addLink(name, kindName string) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	kind := attribute(unix.IFLA_INFO_KIND, []byte(kindName))
	body := make([]byte, unix.SizeofIfInfomsg)
	native.NativeEndian.PutUint32(body[8:], unix.IFF_UP)
	native.NativeEndian.PutUint32(body[12:], unix.IFF_UP)
	body = append(body, attribute(unix.IFLA_IFNAME, append([]byte(name), 0))...)
	body = append(body, attribute(unix.IFLA_LINKINFO, kind)...)
	header := make([]byte, unix.SizeofNlMsghdr)
	native.NativeEndian.PutUint32(header, uint32(len(header)+len(body)))
	native.NativeEndian.PutUint16(header[4:], unix.RTM_NEWLINK)
	native.NativeEndian.PutUint16(header[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	if err := unix.Sendto(fd, append(header, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return io.ErrUnexpectedEOF
	}
	if code := int32(native.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// attribute is one netlink attribute, padded.
func attribute(kind uint16, value []byte) []byte {
	b := make([]byte, 4, 4+len(value)+3)
	native.NativeEndian.PutUint16(b, uint16(4+len(value)))
	native.NativeEndian.PutUint16(b[2:], kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// sendFrames sends frames that need no addresses.
func sendFrames(name string, size int) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	frame := make([]byte, 1400)
	for sent := 0; sent < size; sent += len(frame) {
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index, Halen: 6}); err != nil {
			return err
		}
	}
	return nil
}
