package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"syscall"
)

// maxSize bounds a configuration file, in bytes; a whole one has a few kilobytes.
const maxSize = 1 << 20

// Load reads the configuration of this machine from a file. A file that holds a secret must be readable by its owner alone, and the
// owner be root or the caller. Problems are found in the error with errors.As.
func Load(path string) (Config, []Warning, error) {
	data, info, err := read(path)
	if err != nil {
		return Config{}, nil, err
	}
	name, err := os.Hostname()
	if err != nil {
		return Config{}, nil, fmt.Errorf("cannot read the host name: %w", err)
	}
	c, warnings, problems := parse(data, Host{HostName: name, Arch: runtime.GOARCH})
	err = guard(path, info, len(c.Secrets()) > 0)
	if len(problems) > 0 {
		err = errors.Join(err, fmt.Errorf("cannot use the configuration %s:\n%w", path, problems))
	}
	if err != nil {
		return Config{}, warnings, err
	}
	return c, warnings, nil
}

// read returns a regular file and what it was like when it was opened. It does not wait for a writer on a pipe.
func read(path string) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("cannot read the configuration %s: it is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	if len(data) > maxSize {
		return nil, nil, fmt.Errorf("cannot read the configuration %s: it is larger than 1 MiB", path)
	}
	return data, info, nil
}

// guard refuses a file that others can write to, or that holds a secret and others can read or own.
func guard(path string, info fs.FileInfo, secret bool) error {
	mode := info.Mode().Perm()
	owner, caller := owner(info), os.Geteuid()
	switch {
	case secret && owner != 0 && owner != caller:
		return fmt.Errorf("cannot use the configuration %s: it holds a secret and belongs to user %d; run `chown root %s && chmod 600 %s`", path, owner, path, path)
	case secret && mode&0o077 != 0:
		return fmt.Errorf("cannot use the configuration %s: it holds a secret and others have access to it (mode %04o); run `chmod 600 %s`", path, mode, path)
	case mode&0o002 != 0:
		return fmt.Errorf("cannot use the configuration %s: everybody can change it (mode %04o); run `chmod o-w %s`", path, mode, path)
	}
	return nil
}

func owner(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return 0
}
