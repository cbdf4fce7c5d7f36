package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// exited is the error of a program that has ended with a code.
type exited int

func (e exited) Error() string { return "exit status" }
func (e exited) ExitCode() int { return int(e) }

// packages is a machine with dpkg, which knows one package in a state and can break.
type packages struct {
	*Host
	status string
	breaks bool
	calls  []string
}

func withPackages(t *testing.T, status string) *packages {
	t.Helper()
	p := &packages{Host: testHost(t), status: status}
	p.PackageDir, p.PackageWait = "/var/lib/packages", time.Minute
	write(t, p.Host, "/var/lib/dpkg/status", "")
	write(t, p.Host, "/var/lib/packages/azcmagent_1.62_amd64.deb", "")
	p.Programs = p.run
	return p
}

func (p *packages) run(_ context.Context, argv []string) ([]byte, error) {
	if argv[0] == "dpkg-query" {
		if p.status == "" {
			return nil, exited(1)
		}
		return []byte(p.status + " 1.62"), nil
	}
	line := strings.Join(argv, " ")
	p.calls = append(p.calls, line)
	switch {
	case strings.Contains(line, "--install") && p.breaks:
		p.status = "unpacked"
		return nil, errors.New("azcmagent depends on x")
	case strings.Contains(line, "--install"):
		p.status = "installed"
	case strings.Contains(line, "--purge"):
		p.status = ""
	default:
		p.status = "config-files"
	}
	return nil, nil
}

func (p *packages) is(t *testing.T) state.Package {
	t.Helper()
	r, err := p.Observe(t.Context(), state.PackageKey("azcmagent"))
	if err != nil {
		t.Fatal(err)
	}
	return r.(state.Package)
}

func (p *packages) become(t *testing.T, to state.PackageState) error {
	t.Helper()
	c := state.Change{To: state.Package{Name: "azcmagent", State: to}}
	return p.Set(t.Context(), c, nil)
}

// Each word of dpkg is a state; a program without a package is as good as one.
func TestObservePackage(t *testing.T) {
	for status, want := range map[string]state.PackageState{
		"": state.PackageAbsent, "not-installed": state.PackageAbsent,
		"config-files": state.PackageRemoved, "installed": state.PackageInstalled,
		"half-installed": state.PackageUnfinished, "unpacked": state.PackageUnfinished,
		"half-configured": state.PackageUnfinished, "triggers-awaited": state.PackageUnfinished,
	} {
		if is := withPackages(t, status).is(t); is.State != want {
			t.Errorf("%q is %v, want %v", status, is, want)
		}
	}
	p := withPackages(t, "")
	write(t, p.Host, "/opt/azcmagent/bin/azcmagent", "")
	if is := p.is(t); is.State != state.PackageInstalled || is.Version != "" {
		t.Errorf("a program without a package is %v", is)
	}
	p.Programs = func(context.Context, []string) ([]byte, error) { return nil, fs.ErrNotExist }
	if is := p.is(t); is.State != state.PackageInstalled {
		t.Errorf("without dpkg a program is %v", is)
	}
	p.Programs = func(context.Context, []string) ([]byte, error) { return nil, exited(2) }
	if _, err := p.Observe(t.Context(), state.PackageKey("azcmagent")); err == nil {
		t.Error("dpkg's own failure counts as absence")
	}
}

// One package is installed and removed, without questions and without effect on any other package
// or service.
func TestSetPackage(t *testing.T) {
	p := withPackages(t, "")
	for _, to := range []state.PackageState{
		state.PackageInstalled, state.PackageRemoved, state.PackageInstalled, state.PackageAbsent,
	} {
		write(t, p.Host, "/var/lib/packages/azcmagent_1.62_amd64.deb", "")
		if err := p.become(t, to); err != nil || p.is(t).State != to {
			t.Errorf("%v: %v, is %v", to, err, p.is(t))
		}
	}
	const with = "env LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 " +
		"DPKG_FRONTEND_LOCKED=true dpkg "
	install := with + "--install --force-confdef --force-confold " +
		p.path("/var/lib/packages/azcmagent_1.62_amd64.deb")
	want := []string{install, with + "--remove --force-remove-reinstreq azcmagent", install,
		with + "--purge --force-remove-reinstreq azcmagent"}
	if got := strings.Join(p.calls, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("calls:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

// An installation that fails leaves nothing, and says what to do. One that was interrupted is
// finished or taken back.
func TestPackageGoesBack(t *testing.T) {
	p := withPackages(t, "")
	p.breaks = true
	err := p.become(t, state.PackageInstalled)
	if err == nil || !strings.Contains(err.Error(), "depends on x; nothing of it is left") ||
		p.is(t).State != state.PackageAbsent {
		t.Errorf("%v, is %v", err, p.is(t))
	}
	p = withPackages(t, "config-files")
	p.breaks = true
	err = p.Set(t.Context(), state.Change{From: p.is(t),
		To: state.Package{Name: "azcmagent", State: state.PackageInstalled}}, nil)
	if err == nil || !strings.Contains(err.Error(), "its configuration is left") ||
		p.is(t).State != state.PackageRemoved {
		t.Errorf("with its configuration there: %v, is %v", err, p.is(t))
	}
	for _, to := range []state.PackageState{state.PackageInstalled, state.PackageAbsent} {
		p := withPackages(t, "half-installed")
		if err := p.become(t, to); err != nil || p.is(t).State != to {
			t.Errorf("interrupted, then %v: %v, is %v", to, err, p.is(t))
		}
	}
	p = withPackages(t, "")
	if err := os.Remove(p.path("/var/lib/packages/azcmagent_1.62_amd64.deb")); err != nil {
		t.Fatal(err)
	}
	if err := p.become(t, state.PackageInstalled); err == nil || len(p.calls) > 0 {
		t.Errorf("without a file: %v, calls %q", err, p.calls)
	}
}

// Another package manager is waited for, and not for ever.
func TestPackageLock(t *testing.T) {
	for _, path := range (&Host{Root: t.TempDir()}).distro().Manager.Locks {
		p := withPackages(t, "")
		p.PackageWait = time.Millisecond
		f, err := os.Create(filepath.Join(p.Root, path))
		if err != nil {
			t.Fatal(err)
		}
		// A lock of the open file keeps out this process too (fcntl(2), F_OFD_SETLK).
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
			t.Fatal(err)
		}
		err = p.become(t, state.PackageInstalled)
		if err == nil || !strings.Contains(err.Error(), "another package manager is running") ||
			strings.Contains(err.Error(), "is left") || len(p.calls) > 0 {
			t.Errorf("%s is held: %v, calls %q", path, err, p.calls)
		}
		f.Close()
		if err := p.become(t, state.PackageInstalled); err != nil {
			t.Errorf("%s is free again: %v", path, err)
		}
	}
}

// What a package leaves in directories that were not there before goes with all that is in it; one
// that was there stays.
func TestTrees(t *testing.T) {
	h := testHost(t)
	write(t, h, "/var/opt/mine/x", "")
	for _, tt := range []struct {
		dir   string
		stays bool
	}{{"/var/opt/azcmagent", false}, {"/var/opt/mine", true}} {
		key := state.Residue{Kind: state.Trees, Match: tt.dir}.Key()
		before, err := h.Observe(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		write(t, h, tt.dir+"/certs/deep/file", "")
		if err := h.Set(t.Context(), state.Change{To: before, Undo: true}, nil); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(h.path(tt.dir)); (err == nil) != tt.stays {
			t.Errorf("%s: %v, want that it stays: %v", tt.dir, err, tt.stays)
		}
	}
}

// Under systemd dpkg is in a scope of its own, since what is left in the agent's unit is killed
// when that has stopped; and it writes to no pipe, which would break with the agent.
func TestPackageManagerOutlivesTheAgent(t *testing.T) {
	p := withPackages(t, "")
	write(t, p.Host, "/run/systemd/system/x", "")
	if err := p.become(t, state.PackageInstalled); err != nil {
		t.Fatal(err)
	}
	const want = " DPKG_FRONTEND_LOCKED=true systemd-run --quiet --scope --collect dpkg --install "
	if len(p.calls) != 1 || !strings.Contains(p.calls[0], want) {
		t.Errorf("calls: %q", p.calls)
	}
	out, err := root.program(nil)(t.Context(), []string{"sh", "-c",
		`for out in 1 2; do test -f /proc/self/fd/$out || echo "$out is no file"; done; echo said`})
	if err != nil || string(out) != "said\n" {
		t.Errorf("%q, %v", out, err)
	}
}
