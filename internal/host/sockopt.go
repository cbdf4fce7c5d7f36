package host

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// getSockopt reads a socket's option that is also a question: value is both.
func getSockopt(socket, level, option int, value []byte) error {
	size := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level),
		uintptr(option), uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
