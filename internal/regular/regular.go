// Package regular reads regular files only. Reading anything else in place of a file, such as a
// pipe without a writer, a socket or a device, could block or continue for ever.
package regular

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// ErrOther reports a path that is not a regular file.
var ErrOther = errors.New("it is not a regular file")

// Open opens a regular file, following links, and returns its info. The error is a *fs.PathError.
func Open(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) { // a socket (open(2))
		err = &fs.PathError{Op: "open", Path: path, Err: ErrOther}
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrOther}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// ReadFile returns the content of a regular file.
func ReadFile(path string) ([]byte, error) {
	f, info, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := bytes.NewBuffer(make([]byte, 0, bytes.MinRead+min(info.Size(), 1<<20)))
	_, err = b.ReadFrom(f)
	return b.Bytes(), err
}
