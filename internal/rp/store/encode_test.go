package store

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

type inner struct {
	A int `json:"a,omitempty"`
}

// Word is a member with its name when it is embedded.
type Word string

type Outer struct {
	Plain   string           `json:"plain"`
	Gone    *int             `json:"gone,omitempty"`
	In      inner            `json:"in"`
	Pointer *inner           `json:"pointer,omitempty"`
	List    []inner          `json:"list"`
	Map     map[string]inner `json:"map"`
	When    time.Time        `json:"when,omitzero"`
	Raw     json.RawMessage  `json:"raw,omitempty"`
	Skipped int              `json:"-"`
	NoTag   int
	inner   // not exported, its fields are
	Deep    // embedded
	*Far    // embedded by pointer
	Word
	Named `json:"named"` // a member of its own
}

type Deep struct {
	Here int `json:"here,omitempty"`
}

type Far struct {
	There int `json:"there,omitempty"`
}

type Named struct {
	X int `json:"x,omitempty"`
}

// as returns a function that replaces a row by a value, and returns the new row and the JSON of the
// value itself.
func as[T any](value T) func(before string) (row, own []byte) {
	return func(before string) (row, own []byte) {
		return must(encode([]byte(before), value)), must(json.Marshal(value))
	}
}

// M14: a program preserves members that a newer one has written.
func TestUnknownMembersRemain(t *testing.T) {
	for name, test := range map[string]struct {
		before  string
		replace func(before string) (row, own []byte)
		want    string // besides the value's own fields
	}{
		"at the top": {`{"new":1,"plain":"x"}`, as(inner{A: 1}), `{"a":1,"new":1,"plain":"x"}`},
		"nested":     {`{"in":{"a":1,"new":2}}`, as(Outer{In: inner{3}}), `{"in":{"a":3,"new":2}}`},
		"in a pointer": {`{"pointer":{"new":2}}`, as(Outer{Pointer: &inner{1}}),
			`{"pointer":{"a":1,"new":2}}`},
		"in a named embedded one": {`{"named":{"x":1,"new":2}}`, as(Outer{Named: Named{5}}),
			`{"named":{"x":5,"new":2}}`},
		"nothing is new": {`{"plain":"x"}`, as(Outer{Plain: "y"}), `{"plain":"y"}`},
		"what is known and left out is gone": {
			`{"gone":1,"pointer":{"new":2},"a":1,"here":1,"there":1}`, as(Outer{}), `{}`},
		"embedded fields are known": {`{"a":1,"here":1,"there":1}`,
			as(Outer{inner: inner{2}, Deep: Deep{3}, Far: &Far{4}}), `{"a":2,"here":3,"there":4}`},
		"a list is the value's own": {`{"list":[{"a":1,"new":2}]}`, as(Outer{List: []inner{{1}}}),
			`{"list":[{"a":1}]}`},
		"a map keeps what its values have": {`{"map":{"k":{"a":1,"new":2},"l":{}}}`,
			as(Outer{Map: map[string]inner{"k": {1}}}), `{"map":{"k":{"a":1,"new":2}}}`},
		"raw JSON is the value's own": {`{"raw":{"new":2}}`,
			as(Outer{Raw: json.RawMessage(`{"a":1}`)}), `{"raw":{"a":1}}`},
		"names without a tag": {`{"NoTag":1,"Word":"a","Skipped":7}`,
			as(Outer{NoTag: 3, Word: "b"}), `{"NoTag":3,"Word":"b","Skipped":7}`},
		"a newer kind of value": {`{"in":[1,2]}`, as(Outer{In: inner{1}}), `{"in":{"a":1}}`},
		"no object":             {`["x"]`, as(Outer{Plain: "y"}), `{"plain":"y"}`},
		"null":                  {`null`, as(Outer{Plain: "y"}), `{"plain":"y"}`},
		"damaged":               {`{"new":`, as(Outer{Plain: "y"}), `{"plain":"y"}`},
		"null for null":         {`{"new":1}`, as((*inner)(nil)), `null`},
		"a time":                {`{"when":"2026-01-01T00:00:00Z"}`, as(Outer{}), `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			row, own := test.replace(test.before)
			var is, want map[string]any
			must(0, json.Unmarshal(row, &is))
			must(0, json.Unmarshal(own, &want))
			must(0, json.Unmarshal([]byte(test.want), &want)) // more members
			equal(t, "the row", is, want)
		})
	}
}

// An older program reads a row, changes something and writes it back: all steps.
func TestARowOfANewerProgram(t *testing.T) {
	m, s := newMemory()
	newer := `{"id":"/A","uid":"u","desired":{"nodeConfig":{"maxPods":7,"swap":{"on":true}},` +
		`"ring":3},"revision":5,"signature":"abc","systemData":{"createdBy":"me","via":"portal"}}`
	put(t, m, s.Nodes.Key("n"), newer)
	update(t, s, func(v *View) error {
		row := s.Nodes.Row(v, "n")
		row.Value.Revision, row.Value.Desired.NodeConfig.MaxPods = 6, 8
		must(0, s.Nodes.Put(v, "n", row.Value))
		return s.Nodes.Put(v, "n", row.Value) // a second time in one view
	})
	text := values(t, m, s.Nodes.Key("n"))[0]
	for _, want := range []string{
		`"revision":6`, `"maxPods":8`, `"swap":{"on":true}`, `"ring":3`, `"signature":"abc"`,
		`"via":"portal"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
}

func TestPackedRows(t *testing.T) {
	m, s := newMemory()
	own := json.RawMessage(`{"a":"` + strings.Repeat("x", 2000) + `"}`)
	h := flexnode.History{}.With(flexnode.Revision{Version: 1, Facts: "f", Own: own}, 0)
	update(t, s, func(v *View) error { return s.History.Put(v, "n", h) })
	update(t, s, func(v *View) error {
		row := s.History.Row(v, "n")
		return s.History.Put(v, "n", row.Value.With(flexnode.Revision{Version: 2, Own: own}, 1))
	})
	row := must(s.History.Get(t.Context(), "n"))
	first, second := must(row.Value.Find(1)), must(row.Value.Find(2))
	if first == nil || second == nil || first.Facts != "f" {
		t.Errorf("%+v", row)
	}
	if size := len(values(t, m, s.History.Key("n"))[0]); size < 10 || size > 400 {
		t.Errorf("it is stored in %d bytes", size)
	}
}

// A revision is never changed: it stays as written, even when an older program adds one.
func TestRevisionsOfANewerProgramRemain(t *testing.T) {
	s := New(storetest.NewMemory())
	const newer = `{"version":1,"facts":"f","own":{"a":"<b>"},"created":"2026-01-01T00:00:00Z",` +
		`"why":"put","signature":{"by":"newer","of":[1.50]}}`
	const beside = `"epoch":{"of":3}`
	const first = `{"revisions":[{"version":1}],` + beside + "}\n"
	put(t, s, s.History.Key("n"), string(pack([]byte(first+newer))))
	update(t, s, func(v *View) error {
		row := s.History.Row(v, "n")
		if r, err := row.Value.Find(1); r == nil || string(r.Own) != `{"a":"<b>"}` {
			t.Errorf("%+v, %v", r, err)
		}
		return s.History.Put(v, "n", row.Value.With(flexnode.Revision{Version: 2}, 1))
	})
	text, err := unpack([]byte(values(t, s, s.History.Key("n"))[0]))
	if err != nil || !strings.Contains(string(text), newer) ||
		!strings.Contains(string(text), beside) {
		t.Errorf("%v: it is not there as it was: %s", err, text)
	}
}
