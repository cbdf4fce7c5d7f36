package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Kernel is what is no plain file below the root: modules, swap, and what running programs leave behind.
type Kernel interface {
	// LoadModule and UnloadModule change the running kernel.
	LoadModule(ctx context.Context, name string) error
	UnloadModule(name string) error
	SwapOff(name string) error
	SwapOn(name string, priority int) error
	// Find lists what there is of a residue, sorted; Clear takes away what is in found.
	Find(ctx context.Context, r state.Residue) ([]string, error)
	Clear(ctx context.Context, r state.Residue, found []string) error
}

// sysctlPath is the file of a kernel parameter. In names, dots separate; an interface's own dots are written as slashes
// (sysctl(8)).
func sysctlPath(name string) string {
	return "/proc/sys/" + strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

func (h *Host) observeSysctl(name string) (state.Resource, error) {
	data, err := h.ReadFile(sysctlPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return state.Sysctl{Name: name}, nil // its module is not loaded yet
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return state.Sysctl{Name: name, Value: strings.Join(strings.Fields(string(data)), " ")}, nil
}

// setSysctl sets a kernel parameter. One that was not there before has gone with its module.
func (h *Host) setSysctl(to state.Sysctl) error {
	if to.Value == "" {
		return nil
	}
	if err := h.touch("set %s", to.Name); err != nil {
		return err
	}
	err := os.WriteFile(h.path(sysctlPath(to.Name)), []byte(to.Value), 0o644)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cannot set %s: this kernel does not have it; is its module missing?", to.Name)
	case err != nil:
		return fmt.Errorf("cannot set %s to %s: %w", to.Name, to.Value, unwrapPath(err))
	}
	return nil
}

func (h *Host) observeModule(name string) (state.Resource, error) {
	_, err := os.Stat(h.path("/sys/module/" + name))
	if err == nil || h.builtin(name) {
		return state.Module{Name: name, Loaded: true}, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return state.Module{Name: name}, nil
	}
	return nil, fmt.Errorf("cannot look for module %s: %w", name, err)
}

// builtin tells whether a module without parameters is part of the kernel: those do not show in /sys/module.
func (h *Host) builtin(name string) bool {
	switch name {
	case "overlay":
		data, _ := h.ReadFile("/proc/filesystems") // what cannot be read is not there
		return strings.Contains(string(data), "\toverlay\n")
	case "br_netfilter":
		_, err := os.Stat(h.path(sysctlPath("net.bridge.bridge-nf-call-iptables")))
		return err == nil
	}
	return false
}

func (h *Host) setModule(ctx context.Context, to state.Module) error {
	if err := h.touch("set module %s", to.Name); err != nil {
		return err
	}
	if to.Loaded {
		if err := h.Kernel.LoadModule(ctx, to.Name); err != nil {
			return fmt.Errorf("cannot load module %s: %w", to.Name, err)
		}
		return nil
	}
	err := h.Kernel.UnloadModule(to.Name)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EBUSY) {
		h.Log.Info("module left loaded: others use it now", "module", to.Name)
		return nil
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot unload module %s: %w", to.Name, err)
	}
	return nil
}

// swaps reads /proc/swaps.
func (h *Host) swaps() ([]state.Swap, error) {
	f, err := os.Open(h.path("/proc/swaps"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel without swap
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the swap areas: %w", err)
	}
	defer f.Close()
	var list []state.Swap
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || fields[0] == "Filename" {
			continue
		}
		priority, err := strconv.Atoi(fields[4])
		if err != nil {
			return nil, fmt.Errorf("cannot read the swap areas: %q", lines.Text())
		}
		list = append(list, state.Swap{Name: unescape(fields[0]), On: true, Priority: priority})
	}
	return list, lines.Err()
}

func (h *Host) observeSwap(name string) (state.Resource, error) {
	list, err := h.swaps()
	for _, s := range list {
		if s.Name == name {
			return s, err
		}
	}
	return state.Swap{Name: name}, err
}

func (h *Host) setSwap(to state.Swap) error {
	is, err := h.observeSwap(to.Name)
	if err != nil || is.(state.Swap).On == to.On {
		return err
	}
	if err := h.touch("set swap %s", to.Name); err != nil {
		return err
	}
	if to.On {
		err = h.Kernel.SwapOn(to.Name, to.Priority)
	} else {
		err = h.Kernel.SwapOff(to.Name)
	}
	if err != nil {
		return fmt.Errorf("cannot turn swap on %s %s: %w", to.Name, map[bool]string{true: "on", false: "off"}[to.On], err)
	}
	return nil
}

// linux is the running kernel.
type linux struct{}

// LoadModule implements Kernel.
func (linux) LoadModule(ctx context.Context, name string) error {
	out, err := exec.CommandContext(ctx, "modprobe", "--", name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// UnloadModule implements Kernel.
func (linux) UnloadModule(name string) error { return unix.DeleteModule(name, unix.O_NONBLOCK) }

// SwapOff implements Kernel.
func (linux) SwapOff(name string) error { return swapCall(unix.SYS_SWAPOFF, name, 0) }

// SwapOn implements Kernel. Negative priorities are the kernel's own to give.
func (linux) SwapOn(name string, priority int) error {
	const prefer = 0x8000
	flags := 0
	if priority >= 0 {
		flags = prefer | priority&0x7fff
	}
	return swapCall(unix.SYS_SWAPON, name, flags)
}

func swapCall(call uintptr, name string, flags int) error {
	path, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(call, uintptr(unsafe.Pointer(path)), uintptr(flags), 0); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}

// executables lists the processes whose program lies below dir.
func executables(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err == nil && within(exe, dir) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
