package apply

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// A ledger that was changed by anyone else is not trusted.
func TestDamagedLedger(t *testing.T) {
	m := newMachine(old)
	if err := apply(t, engine(t, m), want); err != nil {
		t.Fatal(err)
	}
	good := m.files["/state/ledger.json"]
	for name, text := range map[string]string{
		"cut": good[:len(good)/2], "edited": strings.Replace(good, "/etc/x", "/etc/y", 1),
		"empty": "", "another form": pageText(t, 1, `[1]`),
	} {
		m.files["/state/ledger.json"] = text
		if _, err := OpenJournal(m, "/state", "ledger.json"); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	m.blind["path:/state/ledger.json"] = errBroken
	if _, err := OpenJournal(m, "/state", "ledger.json"); !errors.Is(err, errBroken) {
		t.Errorf("the error is %v", err)
	}
}

func pageText(t *testing.T, version int, ledger string) string {
	t.Helper()
	p := page{version, state.Digest(ledger), json.RawMessage(ledger)}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A ledger of another version is not read.
func TestVersion(t *testing.T) {
	m := newMachine()
	m.files["/state/ledger.json"] = pageText(t, 2, `{"entries":[]}`)
	if _, err := OpenJournal(m, "/state", "ledger.json"); err == nil {
		t.Error("it is read")
	}
}

// Two ledgers share a directory.
func TestNamedLedgers(t *testing.T) {
	m := newMachine()
	ledger := state.Ledger{Owed: []string{"x.service"}}
	if err := NewJournal(m, "/state", "node-ledger.json").Save(t.Context(), ledger); err != nil {
		t.Fatal(err)
	}
	if engine(t, m).Journal.Exists() {
		t.Error("ledger.json exists")
	}
	j, err := OpenJournal(m, "/state", "node-ledger.json")
	if err != nil || !j.Ledger().Owes("x.service") {
		t.Errorf("node-ledger.json has %v, %v", j, err)
	}
	if _, err := j.Content("1"); err == nil {
		t.Error("a content that was never kept can be opened")
	}
}

// A ledger that is read again is the one on disk: unchanged, changed, damaged, missing.
func TestReadAgain(t *testing.T) {
	m := newMachine()
	j, err := OpenJournal(m, "/state", "ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	is := func(text string, exists, fails bool, owed ...string) {
		t.Helper()
		m.files["/state/ledger.json"] = text
		if text == "" {
			delete(m.files, "/state/ledger.json")
		}
		err := j.Read(m)
		got := j.Ledger().Owed
		if j.Exists() != exists || errors.Is(err, ErrDamaged) != fails || !slices.Equal(got, owed) {
			t.Errorf("%q: exists %t, owes %q, error %v", text, j.Exists(), got, err)
		}
	}
	first := pageText(t, 1, `{"entries":[],"owed":["x.service"]}`)
	is(first, true, false, "x.service")
	is(first, true, false, "x.service")
	is(pageText(t, 1, `{"entries":[],"owed":["y.service"]}`), true, false, "y.service")
	is(first[1:], false, true)
	is(first, true, false, "x.service")
	is("", false, false)
}
