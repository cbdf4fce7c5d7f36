package apply

import (
	"encoding/json"
	"errors"
	"os"
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
		"empty": "", "another form": pageText(t, 1, 1, `[1]`),
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

func pageText(t *testing.T, version, reader int, ledger string) string {
	t.Helper()
	p := page{version, reader, state.Digest(ledger), json.RawMessage(ledger)}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A page says which readers understand it: a newer form that this release can read is read.
func TestReader(t *testing.T) {
	for _, tt := range []struct {
		version, reader int
		ok              bool
	}{{1, 0, true}, {1, 1, true}, {2, 1, true}, {2, 0, false}, {2, 2, false}} {
		m := newMachine()
		m.files["/state/ledger.json"] = pageText(t, tt.version, tt.reader, `{"entries":[]}`)
		j, err := OpenJournal(m, "/state", "ledger.json")
		if (err == nil) != tt.ok {
			t.Errorf("version %d for reader %d: %v", tt.version, tt.reader, err)
		}
		if err == nil && !j.Exists() {
			t.Error("a journal that was read does not exist")
		}
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

// A ledger that release bd1efd1 wrote is read, and written again unchanged.
func TestFormerLedger(t *testing.T) {
	golden, err := os.ReadFile("testdata/ledger-bd1efd1.json")
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine()
	m.files["/state/ledger.json"] = string(golden)
	j, err := OpenJournal(m, "/state", "ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(j.Ledger())
	if err != nil {
		t.Fatal(err)
	}
	var was page
	if err := json.Unmarshal(golden, &was); err != nil {
		t.Fatal(err)
	}
	if string(again) != string(was.Ledger) {
		t.Errorf("it is written as\n%s\nwant\n%s", again, was.Ledger)
	}
	if n := len(j.Ledger().Entries); n != 11 || !j.Ledger().Owes("kubelet.service") {
		t.Errorf("there are %d entries, owed is %v", n, j.Ledger().Owed)
	}
}

// What this release writes can be read by bd1efd1: by its rules, which are repeated here.
func TestFormerReader(t *testing.T) {
	m := newMachine(old)
	if err := apply(t, engine(t, m), want); err != nil {
		t.Fatal(err)
	}
	var former struct {
		Version int             `json:"version"`
		SHA256  string          `json:"sha256"`
		Ledger  json.RawMessage `json:"ledger"`
	}
	if err := json.Unmarshal([]byte(m.files["/state/ledger.json"]), &former); err != nil {
		t.Fatal(err)
	}
	if former.Version != 1 || former.SHA256 != state.Digest(string(former.Ledger)) {
		t.Errorf("version %d, digest %s", former.Version, former.SHA256)
	}
	var ledger struct {
		Entries []struct {
			Step         string
			Before, Ours struct{ Is, Path, Name string }
			Owes         []string
		}
		Owed []string
	}
	if err := json.Unmarshal(former.Ledger, &ledger); err != nil {
		t.Fatal(err)
	}
	known := []string{
		"absent", "dir", "file", "link", "unit", "sysctl", "module", "swap", "residue",
	}
	for _, e := range ledger.Entries {
		if !slices.Contains(known, e.Before.Is) || !slices.Contains(known, e.Ours.Is) {
			t.Errorf("bd1efd1 does not know %+v", e)
		}
	}
	if len(ledger.Entries) != 2 {
		t.Errorf("there are %d entries", len(ledger.Entries))
	}
}

// A journal that is read again is the same one as long as its file is, and never an older one.
func TestAgain(t *testing.T) {
	m := newMachine(old)
	if err := apply(t, engine(t, m), want); err != nil {
		t.Fatal(err)
	}
	j, err := OpenJournal(m, "/state", "ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	if same, err := j.Again(); same != j || err != nil {
		t.Errorf("a file that is the same was decoded again, %v", err)
	}
	good := m.files["/state/ledger.json"]
	m.files["/state/ledger.json"] = pageText(t, 1, 1, `{"entries":[],"owed":["x.service"]}`)
	if other, err := j.Again(); err != nil || !other.Ledger().Owes("x.service") {
		t.Errorf("another file is read as %+v, %v", other, err)
	}
	m.files["/state/ledger.json"] = strings.Replace(good, "/etc/x", "/etc/y", 1)
	if _, err := j.Again(); !errors.Is(err, ErrDamaged) {
		t.Errorf("the error is %v", err)
	}
	delete(m.files, "/state/ledger.json")
	if none, err := j.Again(); err != nil || none.Exists() {
		t.Errorf("a ledger that is gone exists, %v", err)
	}
	if err := j.Save(t.Context(), state.Ledger{Owed: []string{"y.service"}}); err != nil {
		t.Fatal(err)
	}
	if same, err := j.Again(); same != j || err != nil {
		t.Errorf("what was just saved was decoded again, %v", err)
	}
}
