package store

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// Rows are decoded as encoding/json does.
func TestRowsAreDecodedAlike(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 12, 40, 0, time.UTC)
	for _, row := range append(sampleNodes(at), sampleStatus(at)) {
		data, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		var gotHead, wantHead head
		var got, want flexnode.Status
		for _, err := range []error{
			decode(data, &gotHead), json.Unmarshal(data, &wantHead),
			decode(data, &got), json.Unmarshal(data, &want),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(wantHead, gotHead); diff != "" {
			t.Errorf("the head of a node (-encoding/json +ours):\n%s", diff)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a status (-encoding/json +ours):\n%s", diff)
		}
	}
}
