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
	"time"

	"golang.org/x/sys/unix"
)

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
