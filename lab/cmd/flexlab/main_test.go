package main

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"
)

// `flexlab exec` and `flexlab kubectl` exit as if their program had been run directly; programs
// that flexlab runs for itself do not determine its exit code.
func TestExitCode(t *testing.T) {
	end := func(script string) error { return exec.Command("sh", "-c", script).Run() }
	for _, tt := range []struct {
		name   string
		err    error
		code   int
		silent bool
	}{
		{"no error", nil, 0, true},
		{"the user's program", handOn(end("exit 3")), 3, true},
		{"the user's program, killed", handOn(end("kill -9 $$")), 137, true},
		{"the user's program, not there", handOn(exec.Command("/no/such/program").Run()), 1, false},
		{"a program of ours", handOn(fmt.Errorf("cannot make the network: %w", end("exit 3"))), 1, false},
		{"anything else", errors.New("cannot"), 1, false},
	} {
		if code, silent := exitCode(tt.err); code != tt.code || silent != tt.silent {
			t.Errorf("%s: %d %v, want %d %v", tt.name, code, silent, tt.code, tt.silent)
		}
	}
}
