package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	out, err := Run(t.Context(), "/bin/sh", []string{"-c", `printf "$A"; echo no >&2`}, []string{"A=b"})
	if err != nil || string(out) != "b" {
		t.Errorf("%q, %v", out, err)
	}
	_, err = Run(t.Context(), "/bin/sh", []string{"-c", "echo no login >&2; exit 3"}, nil)
	if err == nil || !strings.Contains(err.Error(), "exit status 3: no login") {
		t.Errorf("%v", err)
	}
}

// A command that hangs is killed with its children, and so is a child that keeps the output open.
func TestRunEnds(t *testing.T) {
	for _, script := range []string{
		"sleep 300 & echo $! > child; wait", "sleep 300 & echo $! > child; exec sleep 300",
	} {
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := Run(ctx, "/bin/sh", []string{"-c", "cd " + dir + "; " + script}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		text, err := os.ReadFile(filepath.Join(dir, "child"))
		if err != nil {
			t.Fatal(err)
		}
		stat := "/proc/" + strings.TrimSpace(string(text)) + "/stat"
		for end := began.Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			text, err := os.ReadFile(stat)
			if err != nil || strings.Contains(string(text), ") Z ") {
				break
			}
			if time.Now().After(end) {
				t.Fatal("its child lives")
			}
		}
	}
}
