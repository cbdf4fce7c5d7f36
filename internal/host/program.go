package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Programs runs a program, and returns what it prints. One that is not there is fs.ErrNotExist.
type Programs func(ctx context.Context, argv []string) ([]byte, error)

// toolLimit bounds a run of a program that works on this machine alone, and beatEvery is how often
// a program that runs counts as progress.
const (
	toolLimit = time.Minute
	beatEvery = 30 * time.Second
)

// bounded runs a program, which is killed when limit is over, and calls beat meanwhile.
func bounded(
	ctx context.Context, limit time.Duration, beat func(), run Programs, argv []string,
) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("it has not ended within %s", limit))
	defer cancel()
	if beat != nil {
		go func() {
			for wait.Sleep(ctx, beatEvery) {
				beat()
			}
		}()
	}
	out, err := run(ctx, argv)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return out, err
}

// Run runs a program that changes something, for limit at longest. A secret is handed over in a
// file that only root reads, whose path is the last argument, and that is gone when Run returns:
// arguments and environment can be read by others.
func (h *Host) Run(
	ctx context.Context, limit time.Duration, secret []byte, argv ...string,
) (out []byte, err error) {
	if secret != nil {
		path, err := h.secretFile(secret)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, h.removeTemp(path)) }()
		argv = append(slices.Clone(argv), path)
	}
	done, err := h.Touched("run " + strings.Join(argv[:min(2, len(argv))], " "))
	if err != nil {
		return nil, err
	}
	defer done()
	return h.ask(ctx, limit, argv...)
}

// ask runs a program that changes nothing.
func (h *Host) ask(ctx context.Context, limit time.Duration, argv ...string) ([]byte, error) {
	if h.Programs != nil {
		return bounded(ctx, limit, h.beat, h.Programs, argv)
	}
	return bounded(ctx, limit, h.beat, root.program(nil), argv)
}

func (h *Host) secretFile(secret []byte) (path string, err error) {
	if h.SecretDir == "" {
		return "", errors.New("internal error: no directory for secrets")
	}
	err = h.change("hand over a secret", func() error {
		dir := h.path(h.SecretDir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		f, err := os.CreateTemp(dir, ".secret-*.json") // 0600 (os.CreateTemp)
		if err != nil {
			return err
		}
		path = f.Name()
		_, err = f.Write(secret)
		return errors.Join(err, f.Close())
	})
	if err != nil && path != "" {
		err = errors.Join(err, h.removeTemp(path))
	}
	return path, err
}

// RunOnTerminal runs a program that talks to the person at the terminal, as a user; nil is root.
func (h *Host) RunOnTerminal(
	ctx context.Context, limit time.Duration, u *User, argv ...string,
) error {
	done, err := h.Touched("run " + argv[0])
	if err != nil {
		return err
	}
	defer done()
	_, err = bounded(ctx, limit, h.beat, u.program(os.Stdin), argv)
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
