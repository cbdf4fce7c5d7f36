package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Programs runs a program that somebody else has installed, and returns what it prints. One that is
// not there is fs.ErrNotExist.
type Programs func(ctx context.Context, argv []string) ([]byte, error)

// Run runs a program. A secret is handed over in a file that only root reads, whose path is the
// last argument, and that is gone when Run returns: arguments and environment can be read by
// others.
func (h *Host) Run(
	ctx context.Context, secret []byte, argv ...string,
) (out []byte, err error) {
	if secret != nil {
		path, err := h.secretFile(secret)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, h.removeTemp(path)) }()
		argv = append(slices.Clone(argv), path)
	}
	done, err := h.touch("run %s", strings.Join(argv[:min(2, len(argv))], " "))
	if err != nil {
		return nil, err
	}
	defer done()
	if h.Programs != nil {
		return h.Programs(ctx, argv)
	}
	return runProgram(ctx, argv)
}

func (h *Host) secretFile(secret []byte) (path string, err error) {
	if h.SecretDir == "" {
		return "", errors.New("internal error: no directory for secrets")
	}
	done, err := h.touch("hand over a secret")
	if err != nil {
		return "", err
	}
	defer done()
	dir := h.path(h.SecretDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot hand over a secret: %w", err)
	}
	f, err := os.CreateTemp(dir, ".secret-*.json") // 0600 (os.CreateTemp)
	if err != nil {
		return "", fmt.Errorf("cannot hand over a secret: %w", err)
	}
	_, err = f.Write(secret)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, h.removeTemp(f.Name()))
		return "", fmt.Errorf("cannot hand over a secret: %w", err)
	}
	return f.Name(), nil
}

func runProgram(ctx context.Context, argv []string) ([]byte, error) {
	var stdout, stderr strings.Builder
	cmd := (*User)(nil).command(ctx, argv)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("cannot run %s: %w", argv[0], fs.ErrNotExist)
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) { // else it has done what it was to do
		words := strings.TrimSpace(stderr.String())
		if words == "" {
			words = strings.TrimSpace(stdout.String())
		}
		return nil, fmt.Errorf("%s %s: %w: %s", argv[0], argv[1], err, words)
	}
	return []byte(stdout.String()), nil
}

// RunOnTerminal runs a program that talks to the person at the terminal, as a user; nil is root.
func (h *Host) RunOnTerminal(ctx context.Context, u *User, argv ...string) error {
	done, err := h.touch("run %s", argv[0])
	if err != nil {
		return err
	}
	defer done()
	cmd := u.command(ctx, argv)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stderr, os.Stderr
	if err = cmd.Run(); notThere(err) {
		return fmt.Errorf("cannot run %s: %w", argv[0], fs.ErrNotExist)
	}
	return err
}

// RestartUnit restarts a unit that is not one of the node's.
func (h *Host) RestartUnit(ctx context.Context, name string) error {
	return h.job(ctx, "restart", name, h.Systemd.Restart)
}

// clearSecrets removes the secrets that a killed run has left.
func (h *Host) clearSecrets() error {
	if h.SecretDir == "" {
		return nil
	}
	left, err := filepath.Glob(filepath.Join(h.path(h.SecretDir), ".secret-*"))
	for _, path := range left {
		err = errors.Join(err, h.removeTemp(path))
	}
	return err
}
