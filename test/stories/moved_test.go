package stories

import (
	"os"
	"strings"
	"testing"
)

// If the program that kubelet runs for tokens is gone, as when a package has replaced an
// installation by hand, the next bootstrap sets the running one. After that there is nothing to do,
// and the machine can be given back.
func TestProgramMoved(t *testing.T) {
	t.Parallel()
	w, _ := azureWorld(t)
	before := w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	former := w.program
	w.program = w.installProgram(t)
	if err := os.Remove(former); err != nil {
		t.Fatal(err)
	}
	if result, err := w.bootstrap(); err != nil || result.Changes == 0 {
		t.Fatalf("%d changes, %v", result.Changes, err)
	}
	for _, path := range []string{"/var/lib/kubelet/kubeconfig", "/var/lib/kubelet/token.sh"} {
		text := w.read(path)
		if strings.Contains(text, former) || !strings.Contains(text, w.program) {
			t.Errorf("%s does not call %s:\n%s", path, w.program, text)
		}
	}
	if report, err := w.drift(false); err != nil || len(report.Changes) > 0 {
		t.Errorf("drift: %+v, %v", report, err)
	}
	if result, err := w.bootstrap(); err != nil || result.Changes != 0 {
		t.Errorf("again: %d changes, %v", result.Changes, err)
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}
