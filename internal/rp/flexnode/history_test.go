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
	w.runs = true
	want := map[int64]bool{w.node.Assigned: true}
	for i := range 15 {
		w.put(pods(10 + i))
		want[w.node.Revision] = i >= 5
	}
	got := map[int64]bool{}
	for version := range want {
		got[version] = must(w.history.Find(version)) != nil
	}
	expect(t, "which are kept", got, want)
	expect(t, "how many are kept", len(w.history.revisions), Kept+1)
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
	w.put(pods(11))
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
	_, err := read.Find(7)
	expect(t, "it is read", err == nil, false)
	for _, empty := range []string{`{}`, `{"revisions":null}`, `{"revisions":[]}`} {
		must(0, read.ReadRow([]byte(empty)))
		expect(t, empty, len(read.revisions), 0)
	}
	for _, bad := range []string{"", "[]", "{", `{"revisions":[{}]}`, `{"revisions":[1]}`,
		`{"revisions":[{"version":"x"}]}`, string(row[:len(row)-1]), string(row) + "}",
		string(row) + "\n{}"} {
		err := read.ReadRow([]byte(bad))
		_, unread := read.All()
		expect(t, bad+" is read", err == nil && unread == nil, false)
	}
}

// Few revisions are kept of a node with large configurations, but always the assigned one.
func TestHistoryIsBounded(t *testing.T) {
	own := json.RawMessage(`"` + strings.Repeat("x", 60<<10) + `"`)
	h := History{}
	for version := range int64(30) {
		h = h.With(Revision{Version: version, Own: own}, 3)
	}
	expect(t, "it has too many bytes", len(must(h.Row())) > KeptBytes+64<<10, false)
	for version, kept := range map[int64]bool{29: true, 28: true, 27: true, 3: true, 20: false} {
		expect(t, fmt.Sprintf("revision %d is kept", version), must(h.Find(version)) != nil, kept)
	}
}

func TestTombstones(t *testing.T) {
	var stones Tombstones
	newer := `{"id":"/n","uid":"newer","revision":1,"deleted":"1970-01-01T00:00:50Z","more":[1]}`
	for i := range KeptStones + 20 {
		stones = stones.With(Tombstone{UID: fmt.Sprint(i), Revision: int64(i)})
		if i == 50 {
			stones.Stored[0] = json.RawMessage(newer)
		}
	}
	expect(t, "the tombstones that are kept", len(stones.Stored), KeptStones)
	for uid, want := range map[string]string{"": "true 119", "20": "true 20", "77": "true 77",
		"newer": "true 1", "19": "false 0", "never": "false 0"} { // 19 is one too many
		got, ok, err := stones.Of(uid)
		shows(t, uid, want+" <nil>", ok, got.Revision, err)
	}
	has(t, "what a newer program has written", string(must(json.Marshal(stones))), newer)
	_, _, err := (Tombstones{Stored: []json.RawMessage{[]byte(`{"uid":1}`)}}).Of("")
	expect(t, "a tombstone that cannot be read is none", err == nil, false)
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
	_, ok, _ := stones.Of("used")
	newest, _, err := stones.Of("")
	shows(t, "the needed one, the newest, and how many are kept", "true 199 <nil> 100", ok, newest.UID,
		err, len(stones.Stored))
}

// A tombstone has at most 512 bytes, with the max number of identities.
func TestTombstoneIsSmall(t *testing.T) {
	const id = "11111111-2222-3333-4444-555555555555"
	text := encode(Tombstone{
		UID: id, Revision: 1795255960, Identity: id, Former: Former(id + " " + id + " " + id),
		MachineKey: strings.Repeat("k", 43), Deleted: time.Unix(1795255960, 0).UTC(), Wipe: true,
		Signed: &Signed{Epoch: 100, Time: 1795255960, Key: "0123abcd", Signature: make([]byte, 72)},
	})
	expect(t, string(text)+" has more than 512 bytes", len(text) > 512, false)
}
