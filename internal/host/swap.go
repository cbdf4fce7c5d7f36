package host

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// swaps reads the areas in use, in the order of their names, from /proc/swaps.
func (h *Host) swaps() ([]state.SwapArea, error) {
	rows, err := h.rows("/proc/swaps")
	if except(err, fs.ErrNotExist) != nil { // that of a kernel without swap
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

// unescape undoes the kernel's escapes of blanks, tabs, line ends and backslashes.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

// setSwap turns on the areas that are wanted, or all off where none is.
func (h *Host) setSwap(to state.Swap) error {
	list, err := h.swaps()
	if err != nil {
		return err
	}
	var errs []error
	if len(to.Areas) == 0 {
		for _, area := range list {
			errs = append(errs, h.change("turn off swap on "+area.Name, func() error {
				return h.Kernel.SwapOff(area.Name)
			}))
		}
	}
	for _, area := range to.Areas {
		same := func(is state.SwapArea) bool { return is.Name == area.Name }
		if !slices.ContainsFunc(list, same) {
			errs = append(errs, h.change("turn on swap on "+area.Name, func() error {
				return h.Kernel.SwapOn(area.Name, area.Priority)
			}))
		}
	}
	return errors.Join(errs...)
}

func (linux) SwapOff(name string) error { return swapCall(unix.SYS_SWAPOFF, name, 0) }

// SwapOn leaves negative priorities to the kernel, which gives them itself.
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
		return errno
	}
	return nil
}
