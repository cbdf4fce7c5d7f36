package apply

import (
	"context"
	"io"
	"io/fs"
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
	// blind makes observing a key fail; looked are the keys that were observed.
	blind  map[state.Key]error
	looked []state.Key
}

func newMachine(resources ...state.Resource) *machine {
	m := &machine{
		things: map[state.Key]state.Resource{},
		files:  map[string]string{},
		broken: map[state.Key]error{},
		deaf:   map[state.Key]bool{},
		blind:  map[state.Key]error{},
	}
	for _, r := range resources {
		m.things[r.Key()] = r
	}
	return m
}

func (m *machine) Observe(_ context.Context, key state.Key) (state.Resource, error) {
	m.looked = append(m.looked, key)
	if err := m.blind[key]; err != nil {
		return nil, err
	}
	if r, ok := m.things[key]; ok {
		return r, nil
	}
	kind, name, _ := strings.Cut(string(key), ":")
	if kind == "unit" {
		return state.Unit{Name: name, Enabled: state.NoUnit}, nil
	}
	return state.Absent{Path: name}, nil
}

func (m *machine) Set(_ context.Context, c state.Change, _ Contents) error {
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
	return m.broken["reload"]
}

func (m *machine) Backup(_ context.Context, f state.File, _ string) error {
	m.done = append(m.done, "backup "+f.Path)
	return m.broken["backup"]
}

func (m *machine) Keep(_ context.Context, from state.Resource) (string, error) {
	m.done = append(m.done, "keep "+from.Key().Name())
	return from.Key().Name() + ".kept", m.broken["keep"]
}

func (m *machine) Sweep([]state.Key) error { return nil }

func (m *machine) ReadFile(path string) ([]byte, error) {
	if err := m.blind[state.PathKey(path)]; err != nil {
		return nil, err
	}
	text, ok := m.files[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

func (m *machine) Open(string) (io.ReadCloser, error) { return nil, fs.ErrNotExist }

func engine(t *testing.T, m *machine) *Engine {
	t.Helper()
	j, err := OpenJournal(m, "/state", "ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	return &Engine{Host: m, Disk: m, Journal: j}
}

func apply(t *testing.T, e *Engine, want state.Desired) error {
	t.Helper()
	plan, _, err := e.Plan(t.Context(), want, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e.Apply(t.Context(), plan)
}
