package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// invoked is the environment of a process that a user has started with sudo.
func invoked(id string) func(string) string {
	return func(name string) string { return map[string]string{"SUDO_UID": id}[name] }
}

func TestInvoker(t *testing.T) {
	for _, root := range []string{"", "0"} {
		if u, err := Invoker(invoked(root)); u != nil || err != nil {
			t.Errorf("%q is %+v, %v", root, u, err)
		}
	}
	if _, err := Invoker(invoked("3999999999")); err == nil {
		t.Error("an unknown user")
	}
	const daemon = "1" // as on every Debian
	u, err := Invoker(invoked(daemon))
	if err != nil || u.UID != 1 || u.GID == 0 || u.Home == "" || !slices.Contains(u.Groups, u.GID) {
		t.Fatalf("%+v, %v", u, err)
	}
	t.Setenv("AZURE_CLIENT_SECRET", "root's")
	t.Setenv("HTTPS_PROXY", "http://proxy.example")
	list := u.environment()
	if !slices.Contains(list, "HOME="+u.Home) || !slices.Contains(list,
		"HTTPS_PROXY=http://proxy.example") || strings.Contains(strings.Join(list, "\n"), "root's") {
		t.Errorf("the environment is %q", list)
	}
}

// A program of the user's has the user's rights, groups and home, and root reads nothing of the
// user's for it.
func TestRunAs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	u, err := Invoker(invoked("1"))
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{}
	out, err := h.RunAs(t.Context(), time.Minute, *u, "sh", "-c", `id -u; id -g; id -G; echo "$HOME"`)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != 4 || lines[0] != "1" || lines[1] == "0" || lines[3] != u.Home ||
		slices.Contains(strings.Fields(lines[2]), "0") {
		t.Errorf("%q, %v", out, err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := h.RunAs(t.Context(), time.Minute, *u, "cat", secret); err == nil {
		t.Errorf("it reads what is root's: %s", out)
	}
	_, err = h.RunAs(t.Context(), time.Minute, *u, "no-such-program")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
	err = h.RunOnTerminal(t.Context(), time.Minute, u, "sh", "-c", `test "$(id -u)" = 1`)
	if err != nil {
		t.Errorf("on the terminal: %v", err)
	}
	err = h.RunOnTerminal(t.Context(), time.Minute, u, "no-such-program")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("on the terminal, a program that is not there: %v", err)
	}
}
