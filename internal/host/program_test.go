package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A secret is handed over in a file that only root reads, and that is gone afterwards.
func TestRun(t *testing.T) {
	h := testHost(t)
	if _, err := h.Run(t.Context(), []byte("s"), "cat"); err == nil {
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
	out, err := h.Run(t.Context(), []byte("secret"), "cat")
	if err != nil || string(out) != "secret" {
		t.Errorf("it printed %q, %v", out, err)
	}
	h.Programs = nil
	if out, err = h.Run(t.Context(), []byte("secret"), "cat"); err != nil || len(out) != 6 {
		t.Errorf("it printed %q, %v", out, err)
	}
	if left, err := filepath.Glob(h.path("/run/x/.*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestRunErrors(t *testing.T) {
	h := testHost(t)
	if _, err := h.Run(t.Context(), nil, "no-such-program"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	for _, script := range []string{"echo why; exit 1", "echo why >&2; exit 1"} {
		_, err := h.Run(t.Context(), nil, "sh", "-c", script)
		if err == nil || !strings.Contains(err.Error(), "why") {
			t.Errorf("the error is %v", err)
		}
	}
	if err := h.RunOnTerminal(t.Context(), nil, "no-such-program"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	if err := h.RunOnTerminal(t.Context(), nil, "true"); err != nil {
		t.Error(err)
	}
	if err := h.RestartUnit(t.Context(), "x.service"); err != nil {
		t.Error(err)
	}
	write(t, h, "/file", "")
	h.SecretDir = "/file"
	if _, err := h.Run(t.Context(), []byte("s"), "cat"); err == nil {
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
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			out, err := runProgram(ctx, []string{"sh", "-c", script})
			if ended := name == "ended"; ended != (err == nil) || ended && string(out) != "done\n" {
				t.Errorf("it printed %q, %v", out, err)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}
