package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// A secret is handed over in a file that only root reads, and that is gone afterwards.
func TestRun(t *testing.T) {
	h := testHost(t)
	if _, err := h.Run(t.Context(), time.Minute, []byte("s"), "cat"); err == nil {
		t.Error("without a directory for secrets there is no error")
	}
	h.SecretDir = "/run/x"
	h.Programs = func(_ context.Context, argv []string) ([]byte, error) {
		path := argv[len(argv)-1]
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the secret is %v, %v", info, err)
		}
		return os.ReadFile(path)
	}
	out, err := h.Run(t.Context(), time.Minute, []byte("secret"), "cat")
	if err != nil || string(out) != "secret" {
		t.Errorf("it printed %q, %v", out, err)
	}
	h.Programs = nil
	out, err = h.Run(t.Context(), time.Minute, []byte("secret"), "cat")
	if err != nil || len(out) != 6 {
		t.Errorf("it printed %q, %v", out, err)
	}
	if left, err := filepath.Glob(h.path("/run/x/.*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestRunErrors(t *testing.T) {
	h := testHost(t)
	_, err := h.Run(t.Context(), time.Minute, nil, "no-such-program")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	for _, script := range []string{"echo why; exit 1", "echo why >&2; exit 1"} {
		_, err := h.Run(t.Context(), time.Minute, nil, "sh", "-c", script)
		if err == nil || !strings.Contains(err.Error(), "why") {
			t.Errorf("the error is %v", err)
		}
	}
	err = h.RunOnTerminal(t.Context(), time.Minute, nil, "no-such-program")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	if err := h.RunOnTerminal(t.Context(), time.Minute, nil, "true"); err != nil {
		t.Error(err)
	}
	if err := h.RestartUnit(t.Context(), "x.service"); err != nil {
		t.Error(err)
	}
	write(t, h, "/file", "")
	h.SecretDir = "/file"
	if _, err := h.Run(t.Context(), time.Minute, []byte("s"), "cat"); err == nil {
		t.Error("a secret was handed over nowhere")
	}
}

// A program that is killed, or has ended, is not waited for because of what it has started.
func TestRunLeavesChildrenAlone(t *testing.T) {
	for name, script := range map[string]string{
		"killed": "sleep 30 & wait", "ended": "sleep 30 & echo done",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			out, err := testHost(t).Run(t.Context(), time.Second, nil, "sh", "-c", script)
			if ended := name == "ended"; ended != (err == nil) || ended && string(out) != "done\n" {
				t.Errorf("it printed %q, %v", out, err)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// A program that works on its own counts as progress, and is ended when its time is over.
func TestRunBeats(t *testing.T) {
	for name, run := range map[string]func(context.Context, *Host, time.Duration) error{
		"root's": func(ctx context.Context, h *Host, limit time.Duration) error {
			_, err := h.Run(ctx, limit, nil, "azcmagent", "connect")
			return err
		},
		"a user's": func(ctx context.Context, h *Host, limit time.Duration) error {
			_, err := h.RunAs(ctx, limit, User{Name: "u"}, "az")
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var beats atomic.Int64
			h := testHost(t)
			h.Beat = func() { beats.Add(1) }
			h.Programs = func(ctx context.Context, _ []string) ([]byte, error) {
				if !wait.Sleep(ctx, 5*time.Minute) {
					return nil, ctx.Err()
				}
				return nil, nil
			}
			err := run(t.Context(), h, 10*time.Minute)
			if n := beats.Load(); err != nil || n < 9 {
				t.Errorf("%s program: %d beats in five minutes, %v", name, n, err)
			}
			began := time.Now()
			err = run(t.Context(), h, time.Minute)
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "has not ended within 1m") || took != time.Minute {
				t.Errorf("%s program ends after %s, with %v", name, took, err)
			}
		})
	}
}

// Only the directory of secrets is cleared; without one, nothing is.
func TestClearSecrets(t *testing.T) {
	h := &Host{Root: t.TempDir()}
	kept := filepath.Join(h.Root, ".secret-of-another")
	left := filepath.Join(h.Root, "run", ".secret-1")
	if err := os.Mkdir(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{kept, left} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.clearSecrets(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Errorf("without a directory of secrets: %v", err)
	}
	h.SecretDir = "/run"
	if err := h.clearSecrets(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed run has left is not removed")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("beside the directory: %v", err)
	}
}
