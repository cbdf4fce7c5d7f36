package component

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// toolchain identifies the compiler: its version and target.
func (b Builder) toolchain(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, b.goCommand(), "env", "GOVERSION", "GOARCH", "GOAMD64", "GOARM64")
	cmd.Dir, cmd.Env = os.TempDir(), environment(false)
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("cannot build the lab's components: no go command found; " +
			"install Go and add it to PATH")
	}
	if err != nil {
		return "", fmt.Errorf("cannot ask Go for its version: %w%s", err, stderrOf(err))
	}
	return strings.Join(strings.Fields(string(out)), " "), nil
}

func (b Builder) goCommand() string {
	if b.Go != "" {
		return b.Go
	}
	return "go"
}

// environment returns the caller's environment, without settings that would change the result or
// use another module.
func environment(cgo bool) []string {
	enabled := "0"
	if cgo {
		enabled = "1"
	}
	return append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GO111MODULE=on", "GOOS=linux",
		"GOARCH="+runtime.GOARCH, "CGO_ENABLED="+enabled)
}

// compiling returns settings that compilers share: they collect garbage seldom, and there is one
// more of them than processors, each with half of the processors. Otherwise compilers use spare
// processors for garbage collection, which, together with debug information, is a fifth of the
// time.
func compiling(processors int) (env, flags []string) {
	each := max(1, processors/2)
	return []string{"GOGC=1600", "GOMEMLIMIT=1GiB", fmt.Sprintf("GOMAXPROCS=%d", each)},
		[]string{"-p", strconv.Itoa(processors + 1)}
}

// compile runs go build, or go test -c, once and renames the programs.
func (r *run) compile(ctx context.Context, src, out string, b Build) error {
	// Go names a program after the last element of its import path, which may differ from the
	// wanted name.
	bin := filepath.Join(src, ".bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	env, flags := compiling(runtime.NumCPU())
	command, suffix := []string{"build", "-v"}, ""
	if b.Tests { // go test reports no progress
		command, suffix = []string{"test", "-c", "-vet=off"}, ".test"
	}
	args := append(append(command, "-mod=readonly", "-trimpath", "-buildvcs=false",
		"-gcflags=all=-dwarf=false", // as in make build, to share its cache
		"-tags", strings.Join(b.Tags, ","),
		"-ldflags", strings.Join(append([]string{"-s -w"}, b.LDFlags...), " "),
		"-o", bin+string(filepath.Separator)), flags...)
	if b.NoInlining != "" {
		args = append(args, "-gcflags="+b.NoInlining+"=-dwarf=false -l")
	}
	for _, p := range b.Programs {
		args = append(args, p.Package)
	}
	cmd := exec.CommandContext(ctx, r.builder.goCommand(), args...)
	cmd.Dir, cmd.Env = src, append(environment(b.CGO), env...)
	if err := r.watch(cmd); err != nil {
		return err
	}
	for _, p := range b.Programs {
		built := filepath.Join(bin, executable(p.Package)+suffix)
		if err := os.Rename(built, filepath.Join(out, p.Name)); err != nil {
			return err
		}
	}
	return nil
}

// list lets go list find all packages of a build, which downloads their modules.
func (b Builder) list(ctx context.Context, src string, build Build) error {
	args := []string{
		"list", "-deps", "-mod=readonly", "-tags", strings.Join(build.Tags, ","), "-f", "{{\"\"}}",
	}
	if build.Tests {
		args = append(args, "-test")
	}
	for _, p := range build.Programs {
		args = append(args, p.Package)
	}
	cmd := exec.CommandContext(ctx, b.goCommand(), args...)
	cmd.Dir, cmd.Env = src, environment(build.CGO)
	if _, err := cmd.Output(); err != nil {
		return fmt.Errorf("go list: %w%s", err, stderrOf(err))
	}
	return nil
}

// executable returns the name that go build gives a package's program: the last element that is not
// a major version.
func executable(pkg string) string {
	parent, name := filepath.Split(pkg)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" && parent != "" {
		return filepath.Base(parent)
	}
	return name
}

// watch runs a go command in its own process group, so that its compilers end with it, and counts
// what it reports.
func (r *run) watch(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// Nodes run meanwhile. Without this priority it only takes longer.
	_ = syscall.Setpriority(syscall.PRIO_PGRP, cmd.Process.Pid, 10)
	said := r.count(pipe)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args[:2], " "), err, said)
	}
	return nil
}

// count reads the output of go build -v to its end and returns the last lines that are not
// progress.
func (r *run) count(out io.Reader) string {
	const keep = 40
	var said []string
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "go: downloading "):
			r.downloaded++
		case line != "" && !strings.ContainsAny(line, " \t#"):
			r.compiled++
		default:
			if said = append(said, line); len(said) > keep {
				said = said[1:]
			}
			continue
		}
		r.tell(Building)
	}
	// Drain the pipe even if a line is too long to scan, so that the command does not block.
	_, _ = io.Copy(io.Discard, out)
	return strings.Join(said, "\n")
}

func (r *run) copyExtra(ctx context.Context, src, out string, x Extra) error {
	args := []string{"list", "-mod=readonly", "-m", "-f", "{{.Dir}}", x.Module}
	cmd := exec.CommandContext(ctx, r.builder.goCommand(), args...)
	cmd.Dir, cmd.Env = src, environment(false)
	dir, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("cannot find module %s: %w%s", x.Module, err, stderrOf(err))
	}
	file := filepath.Join(strings.TrimSpace(string(dir)), filepath.FromSlash(x.Path))
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, x.Name), text, 0o644)
}

// verify runs a program to check its version: go does not report a wrong path in a linker flag.
func verify(ctx context.Context, dir string, p Program) error {
	if len(p.Version) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, p.Name), p.Version...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/nonexistent"}
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	out, err := cmd.CombinedOutput()
	if !bytes.Contains(out, []byte(p.Prints)) {
		return fmt.Errorf("%s does not print %q but %q (%v)", p.Name, p.Prints,
			bytes.TrimSpace(out), err)
	}
	return nil
}

func stderrOf(err error) string {
	if exit := new(exec.ExitError); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return ": " + strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}
