package flexnode

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTombstones(t *testing.T) {
	at := func(i int) time.Time { return time.Unix(int64(i), 0).UTC() }
	var stones Tombstones
	newer := `{"id":"/n","uid":"newer","revision":1,"deleted":"1970-01-01T00:00:50Z","more":[1]}`
	for i := range KeptStones + 20 {
		next, err := stones.With(Tombstone{UID: fmt.Sprint(i), Revision: int64(i), Deleted: at(i)})
		if err != nil {
			t.Fatal(err)
		}
		if stones = next; i == 50 {
			stones.Stored[0] = json.RawMessage(newer)
		}
	}
	if n := len(stones.Stored); n != KeptStones {
		t.Errorf("%d are kept", n)
	}
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

// A tombstone is kept for as long as its machine may have a valid certificate: a year after the
// deletion, and longer if one was seen that is valid longer. A successor's does not count.
func TestTombstonesAreNeeded(t *testing.T) {
	deleted := time.Unix(1e9, 0).UTC()
	var stones Tombstones
	for _, uid := range []string{"short", "long"} {
		next, err := stones.With(Tombstone{UID: uid, Deleted: deleted})
		if err != nil {
			t.Fatal(err)
		}
		stones = next
	}
	const day = 24 * time.Hour
	certificates := Certificates{Seen: []Certificate{
		{UID: "short", Ends: deleted.Add(30 * day)}, {UID: "long", Ends: deleted.Add(300 * day)},
		{UID: "long", Ends: deleted.Add(700 * day)}, {UID: "successor", Ends: deleted.Add(900 * day)},
	}}
	for after, want := range map[time.Duration][]string{
		40 * day: {"long", "short"}, 364 * day: {"long", "short"}, 366 * day: {"long"},
		699 * day: {"long"}, 701 * day: nil,
	} {
		needed, err := stones.Needed(certificates, deleted.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		var uids []string
		all, err := needed.All()
		for _, s := range all {
			uids = append(uids, s.UID)
		}
		if err != nil || !slices.Equal(uids, want) {
			t.Errorf("after %s: %q, want %q; %v", after, uids, want, err)
		}
	}
}

// A tombstone has at most 512 bytes, with all identities that it can have.
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
