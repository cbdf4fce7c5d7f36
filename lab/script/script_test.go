// Package script runs the scripts of test/stories with the built program.
package script

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the scripts of test/stories: command lines as a user types them, each with its
// output and exit code.
func TestScripts(t *testing.T) {
	work := t.TempDir()
	if os.Geteuid() == 0 { // root refuses a configuration in /tmp, which others can change
		var err error
		if work, err = os.MkdirTemp("/run", "aks-flex-node-scripts-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(work) })
	}
	programs := filepath.Join(work, "programs")
	build := exec.Command("go", "build", "-C", "../..", "-o", programs+"/", "./cmd/aks-flex-node")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	testscript.Run(t, testscript.Params{
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", programs+string(filepath.ListSeparator)+e.Getenv("PATH"))
			return nil
		},
		Dir:         "../../test/stories",
		WorkdirRoot: work,
		Condition: func(name string) (bool, error) {
			if name != "root" {
				return false, errors.New("no such condition")
			}
			return os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
		},
	})
}

// exits CODE COMMAND... runs a command and checks its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		code = err.Error()[len("exit status "):]
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, want %s", code, args[0])
	}
}
