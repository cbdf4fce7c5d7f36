package host

import (
	"context"
	"errors"
	"fmt"
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

// dialTimeout bounds a connection from a pod's network.
const dialTimeout = 3 * time.Second

// DialFrom implements Kernel.
func (linux) DialFrom(ctx context.Context, namespace string, to netip.AddrPort) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		result <- dialFrom(namespace, to)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dialFrom moves the calling thread to a network namespace and connects to an address of IPv4.
func dialFrom(namespace string, to netip.AddrPort) error {
	ns, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("cannot enter the network of a pod: %w", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	address := &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	if err := unix.Connect(s, address); !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	return connected(s)
}

// connected waits until a connection is there or refused.
func connected(s int) error {
	deadline := time.Now().Add(dialTimeout)
	for {
		wait := []unix.PollFd{{Fd: int32(s), Events: unix.POLLOUT}}
		n, err := unix.Poll(wait, int(max(0, time.Until(deadline).Milliseconds())))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return unix.ETIMEDOUT
		}
		code, err := unix.GetsockoptInt(s, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return err
	}
}
