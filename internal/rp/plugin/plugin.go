// Package plugin runs credential plugins of kubeconfigs. A run has a time limit, and nothing that it
// has started lives on after that. Only internal/rp/cluster uses it, for trusted kubeconfigs.
package plugin

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Run runs a command and returns its output. env is added to the environment of the process. Run
// kills the command and its children when ctx ends.
func Run(ctx context.Context, command string, args, env []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s did not end in time: %w", command, ctx.Err())
	case err != nil:
		text := strings.TrimSpace(stderr.String())
		return nil, fmt.Errorf("cannot run %s: %w: %s", command, err, text[:min(len(text), maxError)])
	}
	return stdout.Bytes(), nil
}

// maxError limits the part of a program's messages that an error has.
const maxError = 256
