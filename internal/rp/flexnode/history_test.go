package flexnode

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The last ten revisions are kept, and the one that is assigned.
func TestHistory(t *testing.T) {
	w := newWorld(t)
	w.put(Desired{})
	assigned := w.node.Assigned
	w.runs = true
	for i := range 15 {
		w.put(Desired{NodeConfig: NodeConfig{MaxPods: 10 + i}})
	}
	expect(t, "the revisions that are kept", len(w.history.revisions), Kept+1)
	expect(t, "the assigned revision is kept", must(w.history.Find(assigned)) != nil, true)
	versions := map[int64]bool{}
	for _, r := range w.history.revisions {
		versions[r.Version] = true
	}
	expect(t, "the versions", len(versions), Kept+1)
}

// New facts evict no owner's revision: the last of them, the running and the offered one are kept.
func TestFactsEvictNothing(t *testing.T) {
	h := History{}.With(Revision{Version: 1, Why: "put"}).With(Revision{Version: 2, Why: "put"})
	for version := int64(3); version < 40; version++ {
		h = h.With(Revision{Version: version, Why: WhyFacts}, 5, 9)
		if version == 20 { // the row is read again
			must(0, h.ReadRow(must(h.Row())))
		}
	}
	h = h.With(Revision{Version: 40, Why: "put"}, 5)
	var got []int64
	for _, r := range must(h.All()) {
		got = append(got, r.Version)
	}
	expect(t, "what is kept", got, []int64{40, 39, 5, 2, 1})
}

// A row of the history is read as far as needed, and rejected if it is invalid.
func TestHistoryRow(t *testing.T) {
	w := newWorld(t)
	w.put(Desired{})
	w.put(Desired{NodeConfig: NodeConfig{MaxPods: 11}})
	row := must(w.history.Row())
	lines := strings.Split(string(row), "\n")
	expect(t, "the lines", len(lines), 3)
	var read History
	must(0, read.ReadRow(row))
	for _, line := range lines[1:] {
		var want Revision
		must(0, json.Unmarshal([]byte(line), &want))
		expect(t, "the one that is found", must(read.Find(want.Version)), &want)
	}
	expect(t, "the row", string(must(read.Row())), string(row))
	const other = `{"revisions":[{"version":7}]}` + "\n" + `{"version":7,"own":{},"why":8}`
	must(0, read.ReadRow([]byte(other))) // of a newer program
	if got, err := read.Find(7); err == nil {
		t.Errorf("%+v is read", got)
	}
	for _, empty := range []string{`{}`, `{"revisions":null}`, `{"revisions":[]}`} {
		must(0, read.ReadRow([]byte(empty)))
		expect(t, empty, len(read.revisions), 0)
	}
	for _, bad := range []string{"", "[]", "{", `{"revisions":[{}]}`, `{"revisions":[1]}`,
		`{"revisions":[{"version":"x"}]}`, string(row[:len(row)-1]), string(row) + "}",
		string(row) + "\n{}"} {
		err := read.ReadRow([]byte(bad))
		if _, unread := read.All(); err == nil && unread == nil {
			t.Errorf("%s is read", bad)
		}
	}
}

// Few revisions are kept of a node with large configurations, but always the assigned one.
func TestHistoryIsBounded(t *testing.T) {
	own := json.RawMessage(`"` + strings.Repeat("x", 60<<10) + `"`)
	h := History{}
	for version := range int64(30) {
		h = h.With(Revision{Version: version, Own: own}, 3)
	}
	if text := must(h.Row()); len(text) > KeptBytes+64<<10 {
		t.Errorf("it has %d bytes", len(text))
	}
	for _, version := range []int64{29, 28, 27, 3} {
		expect(t, fmt.Sprintf("revision %d is kept", version), must(h.Find(version)) != nil, true)
	}
	expect(t, "older ones are kept", must(h.Find(20)) != nil, false)
}

func TestTombstones(t *testing.T) {
	at := func(i int) time.Time { return time.Unix(int64(i), 0).UTC() }
	var stones Tombstones
	newer := `{"id":"/n","uid":"newer","revision":1,"deleted":"1970-01-01T00:00:50Z","more":[1]}`
	for i := range KeptStones + 20 {
		stones = stones.With(Tombstone{
			UID: fmt.Sprint(i), Revision: int64(i), Deleted: at(i),
		})
		if i == 50 {
			stones.Stored[0] = json.RawMessage(newer)
		}
	}
	expect(t, "the tombstones that are kept", len(stones.Stored), KeptStones)
	for uid, want := range map[string]int64{"": KeptStones + 19, "20": 20, "77": 77, "newer": 1} {
		if got, ok, err := stones.Of(uid); err != nil || !ok || got.Revision != want {
			t.Errorf("%q: %+v %v %v", uid, got, ok, err)
		}
	}
	for _, uid := range []string{"19", "never"} { // 19 is one too many
		if got, ok, err := stones.Of(uid); err != nil || ok {
			t.Errorf("%q: %+v %v", uid, got, err)
		}
	}
	text, err := json.Marshal(stones)
	if err != nil || !strings.Contains(string(text), newer) {
		t.Errorf("what a newer program has written is lost: %v", err)
	}
	if _, _, err := (Tombstones{Stored: []json.RawMessage{[]byte(`{"uid":1}`)}}).Of(""); err == nil {
		t.Error("a tombstone that cannot be read is none")
	}
}

// A tombstone is kept as long as its machine may have a valid certificate: a year after the
// deletion, and longer if a certificate with a longer lifetime was seen. A successor's does not
// count. That of a node that no machine ever had is kept for a day.
func TestTombstonesAreNeeded(t *testing.T) {
	deleted := time.Unix(1e9, 0).UTC()
	var stones Tombstones
	for _, uid := range []string{"unused", "short", "long"} {
		stones = stones.With(Tombstone{UID: uid, Deleted: deleted, Unused: uid == "unused"})
	}
	const day = 24 * time.Hour
	certificates := Certificates{Seen: []Certificate{
		{UID: "short", Ends: deleted.Add(30 * day)}, {UID: "long", Ends: deleted.Add(300 * day)},
		{UID: "long", Ends: deleted.Add(700 * day)}, {UID: "successor", Ends: deleted.Add(900 * day)},
	}}
	for after, want := range map[time.Duration][]string{
		day - 1: {"long", "short", "unused"}, day: {"long", "short"},
		40 * day: {"long", "short"}, 364 * day: {"long", "short"}, 366 * day: {"long"},
		699 * day: {"long"}, 701 * day: nil,
	} {
		var uids []string
		for _, s := range must(must(stones.Needed(certificates, deleted.Add(after))).All()) {
			uids = append(uids, s.UID)
		}
		expect(t, "after "+after.String(), uids, want)
	}
}

// Tombstones of nodes without a machine do not displace one that is needed.
func TestUnusedTombstonesGoFirst(t *testing.T) {
	stones := Tombstones{}.With(Tombstone{UID: "used"})
	for i := range 2 * KeptStones {
		stones = stones.With(Tombstone{UID: fmt.Sprint(i), Unused: true})
	}
	newest, _, err := stones.Of("")
	if _, ok, _ := stones.Of("used"); !ok || err != nil || len(stones.Stored) != KeptStones ||
		newest.UID != fmt.Sprint(2*KeptStones-1) {
		t.Errorf("%d are kept, the newest %+v, the needed one: %t, %v", len(stones.Stored), newest, ok,
			err)
	}
}

// A tombstone has at most 512 bytes, with the max number of identities.
func TestTombstoneIsSmall(t *testing.T) {
	const id = "11111111-2222-3333-4444-555555555555"
	text, err := json.Marshal(Tombstone{
		UID: id, Revision: 1795255960, Identity: id, Former: Former(id + " " + id + " " + id),
		MachineKey: strings.Repeat("k", 43), Deleted: time.Unix(1795255960, 0).UTC(), Wipe: true,
		Signed: &Signed{Epoch: 100, Time: 1795255960, Key: "0123abcd", Signature: make([]byte, 72)},
	})
	if err != nil || len(text) > 512 {
		t.Errorf("%d bytes, %v: %s", len(text), err, text)
	}
}
