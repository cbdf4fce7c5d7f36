package e2e

import (
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// Root and kubelet do not run a program owned by a user: bootstrap from there is refused before any
// change, and the log says why. The command named in the error fixes that: what it installs joins
// in fullAndReadOnly.
func programOfAUser(t *testing.T, m lab.Machine, before []string) {
	const dir = "/home/a user/bin"
	const program = dir + "/aks-flex-node"
	if out, code := inside(t, m, "sh", "-c", `mkdir -p "$1" && mv /usr/local/bin/aks-flex-node "$1" &&
		chown -R 1000:1000 "/home/a user"`, "sh", dir); code != 0 {
		t.Fatal(out)
	}
	moved := snapshot(t.Context(), t, m)
	out, code := inside(t, m, program, "bootstrap")
	if code != 1 || !strings.Contains(out, "cannot trust "+program) ||
		!strings.Contains(out, program+" belongs to user 1000") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	same(t, moved, snapshot(t.Context(), t, m))
	if log := logOf(t, m); !strings.Contains(log, "cannot trust "+program) {
		t.Errorf("the log does not say why: %s", log)
	}
	_, cure, _ := strings.Cut(out, "run `")
	cure, _, ok := strings.Cut(cure, "`")
	if want := "install -m 755 '" + program + "' /usr/local/bin/"; !ok || cure != want {
		t.Fatalf("the cure is %q, want %q", cure, want)
	}
	if out, code := inside(t, m, "sh", "-c", cure); code != 0 {
		t.Fatal(out)
	}
	sure(t, m, "rm", "-r", "/home/a user")
	same(t, before, snapshot(t.Context(), t, m))
}
