package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Kernel accesses what is no plain file below the root: modules, swap, what running programs leave
// behind, and the firewall's chains.
type Kernel interface {
	LoadModule(ctx context.Context, name string) error
	UnloadModule(name string) error
	SwapOff(name string) error
	SwapOn(name string, priority int) error
	// Find lists what there is of a residue, sorted; Clear removes what is in found.
	Find(ctx context.Context, r state.Residue) ([]string, error)
	Clear(ctx context.Context, r state.Residue, found []string) error
	// Filters lists the base chains that filter packets.
	Filters() ([]Filter, error)
	// Rules counts the rules of an nftables table, such as "inet kube-proxy"; 0 without it.
	Rules(table string) (int, error)
	// LoadTable replaces a table by that of its file.
	LoadTable(ctx context.Context, to state.Table) error
	// DialFrom connects to a TCP port from a network namespace, and ends the connection.
	DialFrom(ctx context.Context, namespace string, to netip.AddrPort) error
	// ClockSynchronized reports whether a service has told the kernel that its clock is right.
	ClockSynchronized() (bool, error)
}

// linux is the running kernel, the Kernel of a real machine.
type linux struct{ beat func() }

// run runs a program of the machine, which reads input.
func (l linux) run(ctx context.Context, input string, argv ...string) ([]byte, error) {
	run := (*User)(nil).program(strings.NewReader(input))
	return bounded(ctx, toolLimit, l.beat, run, argv)
}

// ErrNoPod reports that no pod has a network of its own here.
var ErrNoPod = errors.New("no pod with a network of its own runs on this machine")

// podNetworks matches the network namespaces that containerd makes for pods.
const podNetworks = "/run/netns/cni-*"

// DialFromPod connects to a TCP port from the network of a pod and ends the connection. The error
// is ErrNoPod, or that of connect(2).
func (h *Host) DialFromPod(ctx context.Context, to netip.AddrPort) error {
	found, err := filepath.Glob(h.path(podNetworks))
	if err != nil || len(found) == 0 {
		return ErrNoPod
	}
	return h.Kernel.DialFrom(ctx, found[0], to)
}

func (linux) DialFrom(ctx context.Context, namespace string, to netip.AddrPort) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		result <- dialFrom(ctx, namespace, to)
	}()
	return <-result
}

// dialFrom moves the calling thread to a network namespace and connects to an address. A Dialer
// makes the socket in the thread that calls it, as there is one address only and no name.
func dialFrom(ctx context.Context, namespace string, to netip.AddrPort) error {
	ns, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("cannot enter the network of a pod: %w", err)
	}
	conn, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	return conn.Close()
}
