package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/prepare"
)

// program returns a process with this program, and is the program in that process.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if given := os.Getenv("TEST_ARGS"); given != "" {
		os.Args = strings.Split(given, " ")
		main()
		os.Exit(0)
	}
	p := exec.Command(must(os.Executable()), "-test.run=^"+t.Name()+"$")
	p.Env = append(os.Environ(), "TEST_ARGS=flexnode-rp "+strings.Join(args, " "))
	return p
}

// A command whose output is lost fails, and says so.
func TestLostOutput(t *testing.T) {
	p := program(t, "version")
	p.Stdout = must(os.OpenFile("/dev/full", os.O_WRONLY, 0))
	said := &strings.Builder{}
	p.Stderr = said
	err := p.Run()
	if err == nil || !strings.Contains(said.String(), "cannot write the result: ") {
		t.Errorf("%v, %s", err, said)
	}
}

// A second signal ends the program while it reads a file that does not answer.
func TestSecondSignal(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(0, syscall.Mkfifo(pipe, 0o600))
	program := program(t, "check", "--settings", pipe)
	must(0, program.Start())
	defer must(os.OpenFile(pipe, os.O_WRONLY, 0)).Close() // once the program reads
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	for range 600 {
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
	case <-time.After(time.Minute):
		t.Error("the command waits for an answer")
	}
}
