package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/prepare"
)

// A second signal ends the program while it reads a file that does not answer.
func TestSecondSignal(t *testing.T) {
	if pipe := os.Getenv("TEST_SETTINGS"); pipe != "" {
		os.Args = []string{"flexnode-rp", "check", "--settings", pipe}
		main()
		return
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(0, syscall.Mkfifo(pipe, 0o600))
	program := exec.Command(must(os.Executable()), "-test.run=^TestSecondSignal$")
	program.Env = append(os.Environ(), "TEST_SETTINGS="+pipe)
	must(0, program.Start())
	defer must(os.OpenFile(pipe, os.O_WRONLY, 0)).Close() // once the program reads
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	for range 50 {
		_ = program.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case err := <-ended:
			if err == nil {
				t.Error("the program has succeeded")
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Error("signals do not end the program")
	must(0, program.Process.Kill())
	<-ended
}

// An interrupt ends the question whether to change a cluster.
func TestInterruptedQuestion(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	silent, end := io.Pipe()
	defer end.Close()
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetIn(silent)
	cmd.SetErr(io.Discard)
	answered := make(chan error, 1)
	go func() {
		changes := []prepare.Change{{Action: prepare.Create}}
		answered <- new(clusterFlags).confirm(cmd, prepare.Report{Changes: changes})
	}()
	select {
	case err := <-answered:
		if err == nil {
			t.Error("the changes are confirmed")
		}
	case <-time.After(5 * time.Second):
		t.Error("the command waits for an answer")
	}
}
