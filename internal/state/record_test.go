package state

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A release keeps what a newer one wrote: fields that it does not know, and kinds.
func TestRecordKeepsWhatItDoesNotKnow(t *testing.T) {
	const newer = `{"is":"file","path":"/c","mode":384,"sha256":"1","acl":"u:x:r"}`
	const fifo = `{"is":"fifo","path":"/d","note":"a\u003cb"}`
	text := `{"entries":[{"step":"cni","before":` + fifo + `,"ours":` + newer + `}]}`
	var ledger Ledger
	if err := json.Unmarshal([]byte(text), &ledger); err != nil {
		t.Fatal(err)
	}
	if data, err := json.Marshal(ledger); err != nil || string(data) != text {
		t.Errorf("it is written as\n%s\nwant\n%s\n%v", data, text, err)
	}
	e := ledger.Entries[0]
	if o, ok := e.Before.Resource.(Opaque); !ok || o.Kind != "fifo" || !Equal(o, o) {
		t.Errorf("the fifo is %#v", e.Before.Resource)
	}
	if !strings.HasPrefix(string(e.Before.Key()), "opaque:fifo:") {
		t.Errorf("its key is %s", e.Before.Key())
	}
	replaced := e.Ours
	replaced.Resource = NewFile("/c", 0o600, "")
	data, err := json.Marshal(replaced)
	if err != nil || strings.Contains(string(data), "acl") {
		t.Errorf("a replaced record is written as %s, %v", data, err)
	}
	data, err = json.Marshal(Record{Resource: e.Before.Resource})
	if err != nil || string(data) != fifo {
		t.Errorf("a new record of an opaque resource is %s, %v", data, err)
	}
	data, err = json.Marshal(e.Before.Resource)
	if err != nil || string(data) != fifo {
		t.Errorf("an opaque resource alone is %s, %v", data, err)
	}
}

// What this release cannot observe is neither undone nor forgotten.
func TestOpaqueIsNotUndone(t *testing.T) {
	fifo := Opaque{Kind: "fifo", Raw: []byte(`{"is":"fifo"}`)}
	ledger := remembers(entry(fifo, fifo))
	seen := see(Unknown{Of: fifo.Key(), Why: "newer"})
	if plan := Diff(nil, nil, seen, ledger); len(plan) > 0 {
		t.Errorf("the plan is %s", show(plan))
	}
	if stale := Stale(nil, nil, seen, ledger); len(stale) > 0 {
		t.Errorf("it is forgotten: %v", stale)
	}
}

func TestRecordErrors(t *testing.T) {
	for _, text := range []string{
		`{"path":"/x"}`, `{"is":"file","path":7}`, `[]`, `{"is":"fifo"`, `{"is":"dir","mode":"x"}`,
	} {
		var r Record
		if err := json.Unmarshal([]byte(text), &r); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
	if _, err := json.Marshal(Record{Resource: Unknown{Of: "node:cordon"}}); err == nil {
		t.Error("an unknown resource was remembered")
	}
	var d Desired
	if err := json.Unmarshal([]byte(`[{"step":1}]`), &d); err == nil {
		t.Error("an item of another form was accepted")
	}
}

func TestCut(t *testing.T) {
	list := Desired{
		{Resource: file},
		{Resource: claim, Needs: "credential"},
		{Resource: bridge},
		{Resource: running, Needs: "ready"},
	}
	for name, tt := range map[string]struct {
		met   []Need
		now   int
		unmet Need
	}{
		"nothing is met":                {nil, 1, "credential"},
		"a later need does not reorder": {[]Need{"ready"}, 1, "credential"},
		"the first is met":              {[]Need{"credential"}, 3, "ready"},
		"all are met":                   {[]Need{"credential", "ready"}, 4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			now, later, unmet := list.Cut(func(n Need) bool {
				for _, m := range tt.met {
					if n == m {
						return true
					}
				}
				return false
			})
			if len(now) != tt.now || len(now)+len(later) != len(list) || unmet != tt.unmet {
				t.Errorf("now %d, later %d, unmet %q", len(now), len(later), unmet)
			}
		})
	}
}

func TestUnknown(t *testing.T) {
	a, b := Unknown{Of: "node:cordon", Why: "x"}, Unknown{Of: "a:b", Why: "y"}
	got := see(a, b, file).Unknown()
	if diff := cmp.Diff([]Unknown{b, a}, got); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
}

func TestSteps(t *testing.T) {
	if got := Steps(); len(got) != 11 || got[0] != Arc || got[10] != Start {
		t.Errorf("the steps are %v", got)
	}
}
