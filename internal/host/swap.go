package host

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

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
	done, err := h.touch("set swap %s", to.Name)
	if err != nil {
		return err
	}
	defer done()
	if to.On {
		err = h.Kernel.SwapOn(to.Name, to.Priority)
	} else {
		err = h.Kernel.SwapOff(to.Name)
	}
	if err != nil {
		return fmt.Errorf("cannot turn swap on %s %s: %w", to.Name, state.Show(to), err)
	}
	return nil
}

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
	_, _, errno := unix.Syscall(call, uintptr(unsafe.Pointer(path)), uintptr(flags), 0)
	if errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}
