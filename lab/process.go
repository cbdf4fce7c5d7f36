package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a background process of the lab. Its start time distinguishes it from a later process
// with the same ID.
type process struct {
	Name  string `json:"name"`
	PID   int    `json:"pid"`
	Start string `json:"start"`
}

// startTime returns field 22 of /proc/PID/stat (proc_pid_stat(5)), or "" if the process does not
// exist. A zombie whose other threads, which field 20 counts, still run exists, and has its ports.
func startTime(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, tail, ok := strings.Cut(string(data), ") ")
	fields := strings.Fields(tail)
	if !ok || len(fields) < 20 || fields[0] == "Z" && (fields[17] == "0" || fields[17] == "1") {
		return ""
	}
	return fields[19]
}

func (p process) alive() bool { return p.PID > 0 && p.Start != "" && startTime(p.PID) == p.Start }

// hasArgument reports whether a process was started with an argument.
func (p process) hasArgument(arg string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
	return err == nil && slices.Contains(strings.Split(string(line), "\x00"), arg)
}

// stop stops a process with SIGTERM, and with SIGKILL after five seconds.
func (p process) stop() error { return p.end(syscall.SIGTERM, syscall.SIGKILL) }

// kill kills a process.
func (p process) kill() error { return p.end(syscall.SIGKILL) }

// end sends one signal after another, each with five seconds to take effect.
func (p process) end(signals ...syscall.Signal) error {
	for _, signal := range signals {
		if !p.alive() {
			return nil
		}
		if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("cannot stop %s (pid %d): %w", p.Name, p.PID, err)
		}
		for range 250 {
			if !p.alive() {
				return nil
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return fmt.Errorf("cannot stop %s (pid %d): it does not exit", p.Name, p.PID)
}

// running returns the running process with a name, if there is one.
func (l *Lab) running(name string) (process, bool) {
	r, err := l.load()
	if err != nil {
		return process{}, false
	}
	for _, p := range r.Processes {
		if p.Name == name && p.alive() {
			return p, true
		}
	}
	return process{}, false
}

// background starts a process that outlives this one, with its output in the lab's logs, unless it
// is running.
func (l *Lab) background(name string, program string, args ...string) error {
	if _, ok := l.running(name); ok {
		return nil
	}
	if err := os.MkdirAll(l.path("logs"), 0o700); err != nil {
		return fmt.Errorf("cannot make the log directory: %w", err)
	}
	log, err := os.OpenFile(l.path("logs", name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the log of %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, l.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", name, err)
	}
	p := process{Name: name, PID: cmd.Process.Pid, Start: startTime(cmd.Process.Pid)}
	go func() { _ = cmd.Wait() }() // reap it if it ends before this process, otherwise init does
	return l.change(func(r *record) { r.Processes = append(withoutProcess(r.Processes, name), p) })
}

func withoutProcess(list []process, name string) []process {
	var rest []process
	for _, p := range list {
		if p.Name != name {
			rest = append(rest, p)
		}
	}
	return rest
}

// until waits for a condition, up to a limit.
func until(ctx context.Context, most time.Duration, what string, done func() error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var last error
	for {
		if last = done(); last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for %s: %w: %w", what, ctx.Err(), last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// run runs a program and returns its standard output. The error includes its standard error.
func run(ctx context.Context, program string, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// hostPackages are the distribution's packages with the programs that the lab needs.
var hostPackages = map[string]string{
	"systemd-nspawn": "systemd-container", "mmdebstrap": "mmdebstrap", "ip": "iproute2",
	"iptables": "iptables", "gcc": "gcc", "nsenter": "util-linux", "gpg": "gnupg",
}

// installPackages installs missing packages.
func (l *Lab) installPackages(ctx context.Context) error {
	var missing []string
	for program, pkg := range hostPackages {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, pkg)
		}
	}
	if _, err := os.Stat("/usr/include/seccomp.h"); err != nil {
		missing = append(missing, "libseccomp-dev", "libc6-dev", "pkg-config")
	}
	if len(missing) == 0 {
		return nil
	}
	l.Say("installing packages: %s", strings.Join(missing, " "))
	if _, err := run(ctx, "apt-get", "update", "-qq"); err != nil {
		return err
	}
	_, err := run(ctx, "env", append([]string{"DEBIAN_FRONTEND=noninteractive", "apt-get", "install",
		"-y", "-qq"}, missing...)...)
	return err
}
