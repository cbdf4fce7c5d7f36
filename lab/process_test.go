package lab

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// As a child of TestAliveWithoutFirstThread this program ends its first thread, on which init runs,
// and keeps running.
func init() {
	if os.Getenv("FLEXLAB_END_FIRST_THREAD") != "" {
		go func() { time.Sleep(time.Minute); os.Exit(1) }()
		time.Sleep(100 * time.Millisecond) // until the goroutine has its own thread
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
}

// A process of which only the first thread has ended looks like a zombie, but still has its files
// and ports.
func TestAliveWithoutFirstThread(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), "FLEXLAB_END_FIRST_THREAD=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := process{PID: cmd.Process.Pid, Start: startTime(cmd.Process.Pid)}
	time.Sleep(time.Second)
	if !p.alive() {
		t.Error("it is taken for ended while threads of it run")
	}
	_ = cmd.Process.Kill()
	for range 250 {
		if !p.alive() {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if p.alive() { // it has not been waited for yet
		t.Error("it is taken for alive after its last thread has ended")
	}
	_ = cmd.Wait()
}
