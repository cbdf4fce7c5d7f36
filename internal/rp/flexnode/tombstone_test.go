package flexnode

import (
	"encoding/json"
	"fmt"
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
	young, err := stones.After(at(100))
	if err != nil || len(young.Stored) != 19 {
		t.Errorf("%d after 100 seconds: %v", len(young.Stored), err)
	}
	if _, _, err := (Tombstones{Stored: []json.RawMessage{[]byte(`{"uid":1}`)}}).Of(""); err == nil {
		t.Error("a tombstone that cannot be read is none")
	}
}
