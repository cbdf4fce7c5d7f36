package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// The exit codes of a join whose pods reach no Services, in services.txtar.
func exitCodesOfAJoin(t *testing.T) {
	t.Parallel()
	m := machine(t, "codes-2")
	output(t, m, "systemctl", "daemon-reload")
	url := created(t, m.Name, desired{"versions": lab.Newest.Desired()})
	writeIn(t, m, "/root/url", url)
	runScript(t, m, "services.txtar")
	rp(t, 200, http.MethodDelete, rpNode(m.Name), nil)
}

// The exit codes that need a node, in node.txtar.
func exitCodes(t *testing.T) {
	t.Parallel()
	m := bareMachine(t, "codes-1")
	if err := bench.Install(m, agent); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "daemon-reload")
	url := created(t, m.Name, desired{"versions": lab.Newest.Desired()})
	writeIn(t, m, "/root/used-url", url)
	must(t, m, "agent", "--config-url-file", "/root/used-url")
	text, err := os.ReadFile(filepath.Join(m.Root, "var/lib/aks-flex-node/bundle.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bundle struct{ Config map[string]any }
	if err := json.Unmarshal(text, &bundle); err != nil {
		t.Fatal(err)
	}
	bundle.Config["node"].(map[string]any)["maxPods"] = 55
	text, err = json.Marshal(bundle.Config)
	if err != nil {
		t.Fatal(err)
	}
	writeIn(t, m, "/root/second.json", string(text))
	runScript(t, m, "node.txtar")
	rp(t, 200, http.MethodDelete, rpNode(m.Name), nil)
}

// runScript runs a script of shell commands on a machine: `exits CODE COMMAND` and `do COMMAND`.
func runScript(t *testing.T, m lab.Machine, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		verb, command, _ := strings.Cut(line, " ")
		code := "0"
		switch verb {
		case "", "#":
			continue
		case "exits":
			code, command, _ = strings.Cut(command, " ")
		case "do":
		default:
			t.Fatalf("%s:%d: %s", name, i+1, line)
		}
		if out, is := inside(t, m, "sh", "-c", command); strconv.Itoa(is) != code {
			t.Errorf("%s:%d: exit code %d: %s\n%s", name, i+1, is, line, out)
		}
	}
}

// A command survives the end of the terminal or connection that shows its progress.
func TestClosedOutput(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	read.Close()
	cmd := exec.CommandContext(t.Context(), agent, "--help")
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Run() // it reports that it could not write
	if cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v", err)
	}
}

// A command outlives its terminal.
func TestLostTerminal(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), agent, "agent", "--config-url-file", "-")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	status := fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)
	eventually(t, "the command's own signals", func() bool {
		text, _ := os.ReadFile(status)
		_, line, _ := strings.Cut(string(text), "SigIgn:")
		var ignored uint64
		_, err := fmt.Sscanf(line, "%x", &ignored)
		return err == nil && ignored&(1<<(syscall.SIGHUP-1)) != 0
	})
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(in, "no URL\n")
	if err = errors.Join(err, in.Close()); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v", err)
	}
}

// writeIn writes a file on a machine.
func writeIn(t *testing.T, m lab.Machine, path, text string) {
	t.Helper()
	if err := bench.Write(m, path, 0o600, []byte(text)); err != nil {
		t.Fatal(err)
	}
}
