package apply

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// machine is a host in memory. It keeps a list of what was done to it, in order.
type machine struct {
	things map[state.Key]state.Resource
	files  map[string]string
	done   []string
	// broken makes the Set of a key fail; deaf makes it have no effect.
	broken map[state.Key]error
	deaf   map[state.Key]bool
}

func newMachine(resources ...state.Resource) *machine {
	m := &machine{things: map[state.Key]state.Resource{}, files: map[string]string{}, broken: map[state.Key]error{}, deaf: map[state.Key]bool{}}
	for _, r := range resources {
		m.things[r.Key()] = r
	}
	return m
}

func (m *machine) Observe(_ context.Context, key state.Key) (state.Resource, error) {
	if r, ok := m.things[key]; ok {
		return r, nil
	}
	kind, name, _ := strings.Cut(string(key), ":")
	if kind == "unit" {
		return state.Unit{Name: name, Enabled: state.NoUnit}, nil
	}
	return state.Absent{Path: name}, nil
}

func (m *machine) Set(_ context.Context, c state.Change, _ func(string) (io.ReadCloser, error)) error {
	key := c.To.Key()
	m.done = append(m.done, "set "+string(key))
	if err := m.broken[key]; err != nil {
		return err
	}
	if f, ok := c.To.(state.File); ok {
		m.files[f.Path] = f.Content
	}
	if !m.deaf[key] {
		m.things[key] = c.To
	}
	return nil
}

func (m *machine) Flush() error { return nil }

func (m *machine) Reload(context.Context) error {
	m.done = append(m.done, "reload")
	return nil
}

func (m *machine) Backup(_ context.Context, f state.File, _ string) error {
	m.done = append(m.done, "backup "+f.Path)
	return nil
}

func (m *machine) Sweep([]state.Key) error { return nil }

func (m *machine) ReadFile(path string) ([]byte, error) {
	text, ok := m.files[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

func (m *machine) Open(string) (io.ReadCloser, error) { return nil, fs.ErrNotExist }

func engine(t *testing.T, m *machine) *Engine {
	t.Helper()
	j, err := OpenJournal(m, "/state")
	if err != nil {
		t.Fatal(err)
	}
	return &Engine{Host: m, Journal: j, Log: slog.New(slog.DiscardHandler)}
}

var (
	file = state.NewFile("/etc/x", 0o644, "new")
	old  = state.File{Path: "/etc/x", Mode: 0o644, SHA256: state.Digest("old")}
	unit = state.Unit{Name: "x.service", Enabled: state.Enabled, Active: true}
	want = state.Desired{{Resource: file, Owes: []string{state.DaemonReload, "x.service"}}, {Resource: unit}}
)

func apply(t *testing.T, e *Engine, want state.Desired) error {
	t.Helper()
	plan, err := e.Plan(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	return e.Apply(t.Context(), plan)
}

// What a thing was is on disk, contents and ledger, before anything is touched.
func TestWritesDownFirst(t *testing.T) {
	m := newMachine(old)
	if err := apply(t, engine(t, m), want); err != nil {
		t.Fatal(err)
	}
	at := func(what string) int { return slices.Index(m.done, what) }
	if !(at("backup /etc/x") >= 0 && at("backup /etc/x") < at("set path:/state/ledger.json") && at("set path:/state/ledger.json") < at("set path:/etc/x") && at("reload") < at("set unit:x.service")) {
		t.Errorf("the order is %v", m.done)
	}
}

// A run that dies between a file and the restart of its unit leaves the restart owed: the next run, a new process, pays it.
func TestOwedRestart(t *testing.T) {
	m := newMachine(old, unit)
	m.broken[unit.Key()] = errors.New("killed")
	if err := apply(t, engine(t, m), want); err == nil {
		t.Fatal("the run did not fail")
	}
	delete(m.broken, unit.Key())
	m.done = nil
	if err := apply(t, engine(t, m), want); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(m.done, "set unit:x.service") {
		t.Errorf("the unit was not restarted: %v", m.done)
	}
	if plan, err := engine(t, m).Plan(t.Context(), want); err != nil || len(plan) > 0 {
		t.Errorf("afterwards there is still something to do: %v %v", plan, err)
	}
}

// A change that the machine takes without an error and without an effect is an error.
func TestChecksThatItTook(t *testing.T) {
	m := newMachine()
	m.deaf[file.Key()] = true
	err := apply(t, engine(t, m), want)
	failed, ok := errors.AsType[*Error](err)
	if !ok || failed.Change.To.Key() != file.Key() {
		t.Errorf("the error is %v", err)
	}
}

// Reverting goes on after an error, but takes nothing away under a service that does not stop.
func TestRevert(t *testing.T) {
	for _, tt := range []struct {
		name   string
		broken state.Key
		stays  []state.Key
	}{
		{"a file that cannot be restored", file.Key(), []state.Key{file.Key()}},
		{"a service that does not stop", unit.Key(), []state.Key{file.Key(), unit.Key()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(old)
			if err := apply(t, engine(t, m), want); err != nil {
				t.Fatal(err)
			}
			m.broken[tt.broken] = errors.New("broken")
			e := engine(t, m)
			if err := e.Revert(t.Context()); err == nil {
				t.Fatal("no error")
			}
			if got := e.Journal.Ledger().Keys(); !slices.Equal(got, tt.stays) {
				t.Errorf("the ledger still has %v, want %v", got, tt.stays)
			}
			delete(m.broken, tt.broken)
			if err := engine(t, m).Revert(t.Context()); err != nil {
				t.Fatal(err)
			}
			if is := m.things[file.Key()]; !state.Equal(is, old) {
				t.Errorf("the file is %s", state.Show(is))
			}
		})
	}
}

// A ledger that was changed by anyone else is not trusted.
func TestDamagedLedger(t *testing.T) {
	m := newMachine(old)
	if err := apply(t, engine(t, m), want); err != nil {
		t.Fatal(err)
	}
	good := m.files["/state/ledger.json"]
	for name, text := range map[string]string{"cut": good[:len(good)/2], "edited": strings.Replace(good, "/etc/x", "/etc/y", 1), "empty": ""} {
		m.files["/state/ledger.json"] = text
		if _, err := OpenJournal(m, "/state"); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	var p page
	if err := json.Unmarshal([]byte(good), &p); err != nil || p.Version != 1 {
		t.Errorf("the ledger's form is %+v: %v", p, err)
	}
}
