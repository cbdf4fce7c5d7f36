package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Programs runs a program and returns its output, or fs.ErrNotExist if the program is missing.
type Programs func(ctx context.Context, argv []string) ([]byte, error)

// toolLimit bounds a run of a program that works on this machine alone. A running program counts as
// progress once every beatEvery.
const toolLimit, beatEvery = time.Minute, 30 * time.Second

// bounded runs a program, kills it after limit, and calls beat meanwhile.
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

// Run runs a program that changes something, for at most limit. A secret is passed in a file that
// only root can read and that is removed when Run returns; its path is the last argument. Other
// users can read arguments and environment.
func (h *Host) Run(
	ctx context.Context, limit time.Duration, secret []byte, argv ...string,
) (out []byte, err error) {
	if secret != nil {
		var path string
		if path, err = h.secretFile(secret); path != "" {
			defer func() { err = errors.Join(err, h.removeTemp(path)) }()
		}
		if err != nil {
			return nil, err
		}
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

// secretFile writes a secret to a file. It returns the path even if it fails after creating it.
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
	return path, err
}

// RunOnTerminal runs a program that talks to the user at the terminal; a nil user is root.
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
	return h.job(ctx, Restart, name)
}

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

// User is a user of the machine for whom a program runs, with that user's rights and home.
type User struct {
	Name, Home string
	UID, GID   uint32
	Groups     []uint32 // the user's supplementary groups
}

// Invoker returns the user who called sudo (sudo(8), SUDO_UID); nil for root itself.
func Invoker(getenv func(string) string) (*User, error) {
	id := getenv("SUDO_UID")
	if id == "" || id == "0" {
		return nil, nil
	}
	found, err := user.LookupId(id)
	if err != nil {
		return nil, fmt.Errorf("cannot tell who has called sudo: %w", err)
	}
	return userOf(found)
}

// UserNamed returns a user of the machine.
func UserNamed(name string) (*User, error) {
	found, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	return userOf(found)
}

func userOf(found *user.User) (*User, error) {
	groups, err := found.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("cannot tell the groups of %s: %w", found.Username, err)
	}
	var ids []uint32
	for _, text := range append([]string{found.Uid, found.Gid}, groups...) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("cannot read the ids of %s: %w", found.Username, err)
		}
		ids = append(ids, uint32(n))
	}
	return &User{
		Name: found.Username, Home: found.HomeDir, UID: ids[0], GID: ids[1], Groups: ids[2:],
	}, nil
}

// kept are the variables of root's environment that are passed to a user's program.
var kept = []string{
	"TERM", "LANG", "LC_ALL", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
	"no_proxy", "REQUESTS_CA_BUNDLE", "AZURE_CONFIG_DIR",
}

// environment returns the environment for a program of the user, without anything of root's own.
func (u User) environment() []string {
	paths := []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
		u.Home + "/.local/bin", u.Home + "/bin"}
	list := []string{"HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name,
		"PATH=" + strings.Join(paths, ":")}
	for _, name := range kept {
		if value, set := os.LookupEnv(name); set {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// root is the user of this process.
var root *User

// command returns a program to run as a user, who must be able to find and execute it.
func (u *User) command(ctx context.Context, argv []string) *exec.Cmd {
	if u == root {
		return exec.CommandContext(ctx, argv[0], argv[1:]...)
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/env", argv...)
	rights := &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	cmd.Env, cmd.Dir, cmd.SysProcAttr = u.environment(), "/", &syscall.SysProcAttr{Credential: rights}
	return cmd
}

// program runs programs as the user and returns their output. If they read the person's own input,
// they print on the terminal.
func (u *User) program(input io.Reader) Programs {
	return func(ctx context.Context, argv []string) ([]byte, error) {
		stdout, err := newOutput()
		stderr, failed := newOutput()
		defer stdout.Close()
		defer stderr.Close()
		if err := errors.Join(err, failed); err != nil {
			return nil, err
		}
		cmd := u.command(ctx, argv)
		cmd.WaitDelay = 5 * time.Second // for children that outlive the program
		cmd.Stdin, cmd.Stdout, cmd.Stderr = input, stdout, stderr
		if input == os.Stdin {
			cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		}
		err = cmd.Run()
		exit, ok := errors.AsType[*exec.ExitError](err)
		switch {
		case err == nil, errors.Is(err, exec.ErrWaitDelay): // the program itself has succeeded
			return read(stdout), nil
		case errors.Is(err, exec.ErrNotFound), u != root && ok && exit.ExitCode() == 127: // env(1)
			return nil, fmt.Errorf("cannot run %s: %w", argv[0], fs.ErrNotExist)
		}
		words := cmp.Or(strings.TrimSpace(string(read(stderr))), strings.TrimSpace(string(read(stdout))))
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(argv[:min(2, len(argv))], " "), err, words)
	}
}

// newOutput returns a file in memory for the output of a program. A pipe would break when this
// process ends first, and the program would stop in the middle of its work.
func newOutput() (*os.File, error) {
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot keep what a program prints: %w", err)
	}
	return os.NewFile(uintptr(fd), "output"), nil
}

func read(output *os.File) []byte {
	text, _ := io.ReadAll(io.NewSectionReader(output, 0, math.MaxInt64)) // memory is always read
	return text
}

// RunAs runs a program as a user and returns its output. It reads nothing of the user's as root.
func (h *Host) RunAs(
	ctx context.Context, limit time.Duration, u User, argv ...string,
) ([]byte, error) {
	if h.Programs != nil {
		return h.ask(ctx, limit, append([]string{"as", u.Name}, argv...)...)
	}
	return bounded(ctx, limit, h.beat, u.program(nil), argv)
}
