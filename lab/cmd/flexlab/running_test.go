package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asProgram is the variable that makes the test binary run as flexlab.
const asProgram = "FLEXLAB_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	// A host has one lab network: this flexlab only supports status, so that no script can start a
	// lab.
	if asked := os.Args[1:]; os.Getenv(asProgram) != "" {
		if len(asked) != 1 || asked[0] != "status" {
			fmt.Fprintln(os.Stderr, "a test's flexlab does nothing but status, not", asked)
			os.Exit(1)
		}
		main()
	}
	os.Exit(m.Run())
}

// checkout is a directory with the scripts that `make test` runs, this flexlab, and programs that
// record their arguments and do nothing.
type checkout struct {
	dir, calls string
	// env is the environment without the variables that tell tests about a lab.
	env []string
}

func newCheckout(t *testing.T) checkout {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := checkout{dir: dir, calls: filepath.Join(dir, "calls")}
	for name, text := range map[string]string{
		"fake/uname": "echo Linux", "fake/id": "echo 0",
		"fake/make": `echo "make $*" >>` + c.calls, "fake/go": `echo "go $*" >>` + c.calls,
		"bin/flexlab": `echo "flexlab $*" >>` + c.calls + "\n" + asProgram + "=1 exec " + self + ` "$@"`,
	} {
		c.write(t, name, "#!/bin/sh\n"+text+"\n")
	}
	for _, name := range []string{"test/run", "test/lab"} {
		text, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		c.write(t, name, string(text))
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "KEEP_LAB=") && !strings.HasPrefix(v, "FLEXLAB_") {
			c.env = append(c.env, v)
		}
	}
	c.env = append(c.env, "FLEXLAB_DIR="+filepath.Join(dir, "lab"),
		"PATH="+filepath.Join(dir, "fake")+":"+os.Getenv("PATH"))
	return c
}

func (c checkout) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// labRuns records this process as one of a running lab.
func (c checkout) labRuns(t *testing.T) {
	t.Helper()
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, tail, _ := strings.Cut(string(stat), ") ")
	start := strings.Fields(tail)[19] // proc_pid_stat(5), field 22
	c.write(t, "lab/lab.json", fmt.Sprintf(
		`{"processes": [{"name": "kube-apiserver", "pid": %d, "start": %q}]}`, os.Getpid(), start))
}

// run runs a command line in the checkout and returns its exit code and output.
func (c checkout) run(t *testing.T, line string, env ...string) (int, string) {
	t.Helper()
	cmd := exec.Command("bash", "-c", line)
	cmd.Dir, cmd.Env = c.dir, append(c.env, env...)
	out, err := cmd.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// called returns the recorded command lines.
func (c checkout) called(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(c.calls)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// A running lab may belong to another process: tests do not touch it without an explicit setting.
func TestLabIsFree(t *testing.T) {
	for _, tt := range []struct {
		name    string
		running bool
		env     []string
		free    bool
	}{
		{"no lab", false, nil, true},
		{"a lab", true, nil, false},
		{"a lab to be replaced", true, []string{"FLEXLAB_REPLACE=1"}, true},
		{"a lab to be used", true, []string{"KEEP_LAB=1"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCheckout(t)
			if tt.running {
				c.labRuns(t)
			}
			code, out := c.run(t, ". test/lab; lab_free", tt.env...)
			if free := code == 0; free != tt.free {
				t.Errorf("free is %v, want %v: %s", free, tt.free, out)
			}
			if says := strings.Contains(out, "cannot test: a lab is running here"); says == tt.free {
				t.Errorf("it says %q", out)
			}
		})
	}
}

// `make test` exits before any test while a lab is running, and does not stop the lab.
func TestMakeTestRefusesARunningLab(t *testing.T) {
	c := newCheckout(t)
	c.labRuns(t)
	code, out := c.run(t, "test/run")
	if code != 1 || !strings.Contains(out, "a lab is running here") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if diff := cmp.Diff([]string{"make build", "flexlab status"}, c.called(t)); diff != "" {
		t.Errorf("called (-want +got):\n%s", diff)
	}
}
