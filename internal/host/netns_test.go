package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A connection is made from the network of the pod, not from that of the machine.
func TestDialFrom(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes network namespaces; make test, run as root, has it")
	}
	program := exec.Command("sleep", "60")
	program.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	defer program.Wait()
	defer program.Process.Kill()
	pod := fmt.Sprintf("/proc/%d/ns/net", program.Process.Pid)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	to := netip.MustParseAddrPort(server.Addr().String())
	const machine = "/proc/thread-self/ns/net"
	if err := (linux{}).DialFrom(t.Context(), machine, to); err != nil {
		t.Errorf("from the machine: %v", err)
	}
	if err := (linux{}).DialFrom(t.Context(), pod, to); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("from a pod without a network: %v", err)
	}
	server.Close()
	if err := (linux{}).DialFrom(t.Context(), machine, to); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("where nothing listens: %v", err)
	}
}
