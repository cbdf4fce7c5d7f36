package apply_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/host/systemdtest"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// generation is a small node whose contents differ with n.
func generation(n int) state.Desired {
	const unitFile = "/etc/systemd/system/x.service"
	text := fmt.Sprintf("generation %d", n)
	owes := []string{state.DaemonReload, "x.service"}
	d := state.Desired{
		{Resource: state.Dir{Path: "/var/lib/x", Mode: 0o700, Purge: true}},
		{Resource: state.NewFile("/etc/x.conf", 0o644, text), Owes: owes[1:]},
		{Resource: state.NewFile(unitFile, 0o644, "[Service]"), Owes: owes},
		{Resource: state.Link{Path: "/usr/bin/x", Target: "/store/" + text}},
		{Resource: state.Unit{Name: "x.service", Enabled: state.Enabled, Active: true}},
	}
	if n == 1 {
		former := state.NewFile("/etc/former.conf", 0o644, "x")
		d = slices.Insert(d, 1, state.Item{Resource: former})
	}
	return d
}

// machine is one machine, on which every run is a new process.
type machine struct {
	t       *testing.T
	root    string
	systemd *systemdtest.Systemd
	// fuse is the number of touches that a run survives; negative is all.
	fuse int
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir(), fuse: -1}
	m.systemd = systemdtest.New(m.root)
	for _, dir := range []string{
		"etc/systemd/system/multi-user.target.wants", "usr/bin", "var/lib/x",
	} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	own := []byte("the owner's")
	if err := os.WriteFile(filepath.Join(m.root, "etc/x.conf"), own, 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// run does something with an engine until it is done or killed, and tells which.
func (m *machine) run(do func(*apply.Engine) error) (killed bool) {
	m.t.Helper()
	over, done := make(chan struct{}), make(chan error, 1)
	log := slog.New(slog.DiscardHandler)
	left := m.fuse
	touch := func(string) (func(), error) {
		if left == 0 {
			close(over)
			select {} // as after SIGKILL, nothing of this run happens any more
		}
		left--
		return func() {}, nil
	}
	h := &host.Host{Root: m.root, Systemd: m.systemd, Log: log, Touch: touch}
	go func() {
		j, err := apply.OpenJournal(h, "/state", "ledger.json")
		if err == nil {
			err = do(&apply.Engine{Host: h, Disk: h, Journal: j})
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			m.t.Fatal(err)
		}
		return false
	case <-over:
		return true
	}
}

func (m *machine) apply(n int) (killed bool) {
	return m.run(func(e *apply.Engine) error {
		plan, _, err := e.Plan(context.Background(), generation(n), nil)
		return errors.Join(err, e.Apply(context.Background(), plan))
	})
}

// revert undoes everything; nothing of it may be taken for the work of another process.
func (m *machine) revert() (killed bool) {
	return m.run(func(e *apply.Engine) error {
		err := e.Revert(context.Background())
		if len(e.Kept)+len(e.Left)+len(e.Journal.Ledger().Entries) > 0 {
			err = errors.Join(err, fmt.Errorf("kept %v, left %v, ledger %v",
				e.Kept, e.Left, e.Journal.Ledger().Keys()))
		}
		return err
	})
}

// tree is every file, its mode and content, but for our own and unfinished ones.
func (m *machine) tree() string {
	m.t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(m.root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == "state":
			return fs.SkipDir
		case strings.HasSuffix(p, "~"):
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, _ := os.ReadFile(p)
		fmt.Fprintf(&b, "%s %s %s\n", strings.TrimPrefix(p, m.root), info.Mode(), data)
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return b.String()
}

// Killed at any touch of a join, a change or an undo, the machine can be finished or undone by the
// next run, and nothing of ours is taken for foreign or left in the ledger (M1).
func TestKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a run for each write takes long; make test has it")
	}
	before := newMachine(t).tree()
	for name, story := range map[string]func(*machine) bool{
		"join": func(m *machine) bool { return m.apply(1) },
		"change": func(m *machine) bool {
			whole := *m
			whole.fuse = -1
			whole.apply(1)
			return m.apply(2)
		},
		"undo": func(m *machine) bool {
			whole := *m
			whole.fuse = -1
			whole.apply(1)
			return m.revert()
		},
	} {
		t.Run(name, func(t *testing.T) {
			points := 0
			for killed := true; killed; points++ {
				m := newMachine(t)
				m.fuse = points
				killed = story(m)
				m.fuse = -1
				if name != "undo" && points%2 == 0 {
					m.apply(2) // every other one is finished first
				}
				m.revert()
				if after := m.tree(); after != before {
					t.Fatalf("killed at %d:\n%s\nwant\n%s", points, after, before)
				}
			}
			if points < 10 {
				t.Errorf("only %d points", points)
			}
		})
	}
}
