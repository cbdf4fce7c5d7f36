package stories

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// noSuch is the error of a program for an unknown object.
type noSuch struct{}

func (noSuch) Error() string { return "exit status 1" }
func (noSuch) ExitCode() int { return 1 }

// The Arc agent's program, and a file that its package leaves behind.
const (
	arcProgram = "/opt/azcmagent/bin/azcmagent"
	arcLeft    = "/var/opt/azcmagent/agentconfig.json"
)

// packages acts as dpkg, apt and the Arc agent of a machine where that is a package; mine is false
// for other programs.
func (m *machine) packages(argv []string) (mine bool, out []byte, err error) {
	_, missing := os.Stat(m.root + arcProgram)
	line := strings.Join(argv, " ")
	switch {
	case argv[0] == "azcmagent" && missing != nil:
		return true, nil, fs.ErrNotExist
	case argv[0] == "dpkg-query" && missing != nil:
		return true, nil, noSuch{}
	case argv[0] != "env":
		return false, nil, nil
	}
	m.ran = append(m.ran, strings.Join(argv[slices.IndexFunc(argv[1:], func(s string) bool {
		return !strings.Contains(s, "=")
	})+1:], " "))
	switch {
	case strings.Contains(line, " apt-get "):
		out, err := m.repository(argv)
		return true, out, err
	case strings.Contains(line, " dpkg --install "):
		if _, err := os.Stat(argv[len(argv)-1]); err != nil {
			return true, nil, err
		}
		return true, nil, errors.Join(m.put(arcProgram), m.put(arcLeft))
	default: // a purge leaves what the agent has made
		return true, nil, os.RemoveAll(m.root + "/opt/azcmagent")
	}
}

func (m *machine) put(path string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(m.root+path), 0o755),
		os.WriteFile(m.root+path, nil, 0o755))
}

// served returns the answer of a repository that has the package.
func served(argv []string) ([]byte, error) {
	if !slices.Contains(argv, "download") {
		return nil, nil
	}
	dir := strings.TrimPrefix(argv[1], "--chdir=")
	return nil, os.WriteFile(filepath.Join(dir, "azcmagent_1.65.0_amd64.deb"), nil, 0o644)
}

// bareArcWorld returns a machine without the Arc agent that will join as an Arc machine.
func bareArcWorld(t *testing.T) (*world, *azuresim.Sim, *machine) {
	t.Helper()
	w, sim := azureWorld(t)
	w.cluster.bootstrappers = true
	m := withMachine(t, w, sim, func() bool { return false })
	m.root, m.repository = w.root, served
	m.Dir = filepath.Join(w.root, "/var/opt/azcmagent")
	w.programs = m.programs
	for _, there := range []string{"lib/dpkg/lock", "lib/dpkg/lock-frontend", "opt/other/.keep"} {
		w.write("/var/"+there, "")
	}
	w.config = w.modeConfig(modes("")[7].azure)
	return w, sim, m
}

// installed reports whether the Arc agent is on the machine.
func (m *machine) installed() bool {
	_, err := os.Stat(m.root + arcProgram)
	return err == nil
}

// A missing Arc agent is installed, and removed with the node; a run that is killed anywhere is
// finished by the next one, and nothing remains in the end.
func TestArcAgentIsInstalled(t *testing.T) {
	w, sim, m := bareArcWorld(t)
	before, touches := w.tree(), w.touched()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if !m.installed() || len(sim.Machines()) != 1 {
		t.Fatalf("ran %q, machines %v", m.ran, sim.Machines())
	}
	if _, err := os.Stat(w.root + access.PackageDir); err == nil {
		t.Error("what was fetched is left")
	}
	if report, err := w.drift(false); err != nil || len(report.Changes) > 0 {
		t.Errorf("drift: %+v, %v", report, err)
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
	if len(sim.Machines()) != 0 {
		t.Errorf("left in Azure: %v", sim.Machines())
	}
	want := []string{"apt-get update --quiet=2", "apt-get download --quiet=2 azcmagent"}
	const purge = "systemd-run --quiet --scope --collect " +
		"dpkg --purge --force-remove-reinstreq azcmagent"
	if len(m.ran) != 4 || !slices.Equal(m.ran[:2], want) || m.ran[3] != purge {
		t.Errorf("ran %q", m.ran)
	}
	all := w.touched() - touches
	for n := 1; n < all; n += max(all/24, 1) {
		w, sim, _ := bareArcWorld(t)
		before := w.tree()
		w.blow(n)
		_, err := w.bootstrap()
		if err == nil {
			err = w.unbootstrap()
		}
		if w.blow(-1); !errors.Is(err, errKilled) {
			t.Fatalf("killed at %d: %v", n, err)
		}
		if n%2 == 0 {
			if _, err := w.bootstrap(); err != nil {
				t.Errorf("killed at %d, bootstrap: %v", n, err)
			}
		}
		if err := w.unbootstrap(); err != nil {
			t.Errorf("killed at %d, unbootstrap: %v", n, err)
		}
		w.same(before)
		if len(sim.Machines()) != 0 {
			t.Errorf("killed at %d: left in Azure: %v", n, sim.Machines())
		}
		if t.Failed() {
			return
		}
	}
}

// An Arc agent that was there before is used and kept, with all its state; ours is kept on request.
func TestArcAgentRemains(t *testing.T) {
	w, _, m := bareArcWorld(t)
	if err := errors.Join(m.put(arcProgram), m.put(arcLeft)); err != nil {
		t.Fatal(err)
	}
	before := w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
	if len(m.ran) > 0 {
		t.Errorf("ran %q", m.ran)
	}
	w, sim, m := bareArcWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	err := w.run(func(ctx context.Context, a *change.Agent) error {
		keep := transition.Options{KeepArc: true}
		_, err := change.Unbootstrap(ctx, a, nil, change.Leave{Options: keep})
		return err
	})
	if err != nil || !m.installed() || len(sim.Machines()) != 1 {
		t.Errorf("--keep-arc: %v, installed %v, machines %v", err, m.installed(), sim.Machines())
	}
}

// A package that cannot be downloaded, or is signed by another key, is a clear error, and nothing
// is installed; the next run succeeds.
func TestArcAgentIsRefused(t *testing.T) {
	for _, tt := range []struct{ fails, want string }{
		{"update", "it is not signed by the right key: E: not signed"},
		{"download", "no package azcmagent, or a damaged one: E: not signed"},
	} {
		w, sim, m := bareArcWorld(t)
		before := w.tree()
		m.repository = func(argv []string) ([]byte, error) {
			if slices.Contains(argv, tt.fails) {
				return nil, errors.New("E: not signed")
			}
			return served(argv)
		}
		if _, err := w.bootstrap(); err == nil || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), "nothing was installed") {
			t.Errorf("%s fails: %v", tt.fails, err)
		}
		if m.installed() || len(sim.Machines()) != 0 {
			t.Errorf("%s fails: installed %v, machines %v", tt.fails, m.installed(), sim.Machines())
		}
		m.repository = served
		if _, err := w.bootstrap(); err != nil {
			t.Errorf("%s works again: %v", tt.fails, err)
		}
		if err := w.unbootstrap(); err != nil {
			t.Error(err)
		}
		w.same(before)
	}
}
