package service

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/AKSFlexNode/internal/rp/front"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// The agent of a node that was deleted before the store was migrated is told so afterwards.
func TestTombstonesOfTheReleaseBefore(t *testing.T) {
	var rows map[string]json.RawMessage
	text := must(os.ReadFile("../store/testdata/v1/rows.json"))
	must(0, json.Unmarshal(text, &rows))
	synctest.Test(t, func(t *testing.T) {
		memory := store.NewMemory()
		for key, value := range rows {
			must(memory.Commit(context.Background(), nil, []store.Write{{Key: key, Value: value}}))
		}
		w := newEmptyWorld(t)
		w.drain()
		w.start(memory)
		w.caller = front.Caller{
			TenantID: tenant, AppID: "aaaaaaaa-0000-0000-0000-000000000001", ObjectID: "o",
			Type: "Application",
		}
		for _, name := range []string{"gone", "going"} {
			r := w.do("GET", nodeURL(name), "")
			text := string(must(io.ReadAll(r.Body)))
			if r.StatusCode != 404 || !strings.Contains(text, front.TombstoneInfo) {
				t.Errorf("%s: %d %s", name, r.StatusCode, text)
			}
		}
	})
}
