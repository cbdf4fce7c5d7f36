package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Kernel accesses the state outside of plain files: modules, swap, leftovers of programs, and the
// chains of the firewall.
type Kernel interface {
	LoadModule(ctx context.Context, name string) error
	UnloadModule(name string) error
	SwapOff(ctx context.Context, name string) error
	SwapOn(name string, priority int) error
	// Find lists the leftovers that a residue describes, sorted; Clear removes those in found.
	Find(ctx context.Context, r state.Residue) ([]string, error)
	Clear(ctx context.Context, r state.Residue, found []string) error
	// Filters lists the base chains that filter packets.
	Filters() ([]Filter, error)
	// Rules counts the rules of an nftables table, such as "inet kube-proxy"; 0 if it does not exist.
	Rules(table string) (int, error)
	// LoadTable replaces a table with the one in its file.
	LoadTable(ctx context.Context, to state.Table) error
	// DialFrom connects to a TCP port from a network namespace, and closes the connection. It returns
	// ECONNREFUSED for a refusal, also for one that is hidden by a proxy in the namespace.
	DialFrom(ctx context.Context, namespace string, to netip.AddrPort) error
	// ClockSynchronized reports whether a service has marked the kernel's clock as synchronised.
	ClockSynchronized() (bool, error)
}

type linux struct{ beat func() }

// run runs a program of the machine with the given standard input.
func (l linux) run(ctx context.Context, input string, argv ...string) ([]byte, error) {
	return bounded(ctx, toolLimit, l.beat, (*User)(nil).program(strings.NewReader(input)), argv)
}

// ErrNoPod reports that no pod on this machine has a network of its own.
var ErrNoPod = errors.New("no pod with a network of its own runs on this machine")

// DialFromPod connects from a pod's network and closes the connection, or returns ErrNoPod.
func (h *Host) DialFromPod(ctx context.Context, to netip.AddrPort) error {
	found, _ := filepath.Glob(h.path("/run/netns/cni-*")) // as containerd names them
	if len(found) == 0 {
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
// creates the socket in the calling thread, since there is only one address and no name.
func dialFrom(ctx context.Context, namespace string, to netip.AddrPort) error {
	ns, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("cannot enter the network of a pod: %w", err)
	}
	dialer := net.Dialer{Timeout: 3 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	conn.Close()
	// A service mesh accepts each connection inside the pod, but redirects no datagrams.
	if conn, err = dialer.DialContext(ctx, "udp", to.String()); err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = conn.Write([]byte{0})
		_, err = conn.Read([]byte{0})
	}
	if errors.Is(err, unix.EHOSTUNREACH) { // administratively prohibited
		return unix.ECONNREFUSED
	}
	return nil
}

// sysctlPath returns the file of a kernel parameter. In names, dots separate; an interface's own
// dots are written as slashes (sysctl(8)).
func sysctlPath(name string) string {
	return "/proc/sys/" + strings.NewReplacer(".", "/", "/", ".").Replace(name)
}

func (h *Host) observeSysctl(name string) (state.Resource, error) {
	data, err := h.ReadFile(sysctlPath(name))
	if except(err, fs.ErrNotExist) != nil { // its module may not be loaded yet
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return state.Sysctl{Name: name, Value: strings.Join(strings.Fields(string(data)), " ")}, nil
}

// setSysctl sets a kernel parameter. One without an old value has disappeared with its module.
func (h *Host) setSysctl(to state.Sysctl) error {
	if to.Value == "" {
		return nil
	}
	return h.change("set "+to.Name+" to "+to.Value, func() error {
		f, err := os.OpenFile(h.path(sysctlPath(to.Name)), os.O_WRONLY|os.O_TRUNC, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("this kernel does not support it; its module may be missing")
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(to.Value)
		return errors.Join(err, f.Close())
	})
}

func (h *Host) observeModule(name string) (state.Resource, error) {
	_, err := os.Stat(h.path("/sys/module/" + name))
	loaded := err == nil || h.builtin(name)
	if !loaded && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot find module %s: %w", name, err)
	}
	return state.Module{Name: name, Loaded: loaded}, nil
}

// builtin reports whether a module without parameters, which /sys/module omits, is built in.
func (h *Host) builtin(name string) bool {
	switch name {
	case "overlay":
		data, _ := h.ReadFile("/proc/filesystems") // unreadable means absent
		return strings.Contains(string(data), "\toverlay\n")
	case "br_netfilter":
		return h.exists(sysctlPath("net.bridge.bridge-nf-call-iptables"))
	}
	return false
}

func (h *Host) setModule(ctx context.Context, to state.Module) error {
	if to.Loaded {
		return h.change("load module "+to.Name, func() error {
			return h.Kernel.LoadModule(ctx, to.Name)
		})
	}
	return h.change("unload module "+to.Name, func() error {
		err := h.Kernel.UnloadModule(to.Name)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EBUSY) {
			h.Log.Info("module left loaded: other programs use it now", "module", to.Name)
		}
		return except(err, unix.ENOENT, unix.EWOULDBLOCK, unix.EBUSY)
	})
}

func (l linux) LoadModule(ctx context.Context, name string) error {
	_, err := l.run(ctx, "", "modprobe", "--", name)
	return err
}

func (linux) UnloadModule(name string) error { return unix.DeleteModule(name, unix.O_NONBLOCK) }

func (h *Host) swaps() ([]state.SwapArea, error) {
	rows, err := h.rows("/proc/swaps")
	if except(err, fs.ErrNotExist) != nil { // a kernel without swap
		return nil, fmt.Errorf("cannot read the swap areas: %w", err)
	}
	var list []state.SwapArea
	for _, row := range rows {
		if len(row) < 5 || row[0] == "Filename" {
			continue
		}
		priority, err := strconv.Atoi(row[4])
		if err != nil {
			return nil, fmt.Errorf("cannot read the swap areas: %q", row)
		}
		list = append(list, state.SwapArea{Name: unescape(row[0]), Priority: priority})
	}
	slices.SortFunc(list, func(a, b state.SwapArea) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

// setSwap turns on the given areas, except those that no longer exist or are no longer formatted as
// swap (swapon(2): EINVAL); without any it turns all swap off.
func (h *Host) setSwap(to state.Swap) error {
	list, err := h.swaps()
	if err != nil {
		return err
	}
	var errs []error
	if len(to.Areas) == 0 {
		for _, area := range list {
			errs = append(errs, h.change("turn off swap on "+area.Name, func() error {
				off := func(ctx context.Context, _ []string) ([]byte, error) {
					return nil, h.Kernel.SwapOff(ctx, area.Name)
				}
				_, err := bounded(context.Background(), time.Hour, h.beat, off, nil)
				return err
			}))
		}
	}
	for _, area := range to.Areas {
		same := func(is state.SwapArea) bool { return is.Name == area.Name }
		if !slices.ContainsFunc(list, same) {
			errs = append(errs, h.change("turn on swap on "+area.Name, func() error {
				return except(h.Kernel.SwapOn(area.Name, area.Priority), unix.ENOENT, unix.EINVAL)
			}))
		}
	}
	return errors.Join(errs...)
}

// SwapOff runs a program: if memory runs out, the kernel first kills the process that does this.
func (linux) SwapOff(ctx context.Context, name string) error {
	_, err := (*User)(nil).program(nil)(ctx, []string{"swapoff", name})
	return err
}

// SwapOn leaves negative priorities to the kernel, which assigns them itself.
func (linux) SwapOn(name string, priority int) error {
	const prefer = 0x8000
	flags := 0
	if priority >= 0 {
		flags = prefer | priority&0x7fff
	}
	path, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(path)), uintptr(flags), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
