package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// A full store accepts writes again after the steps in its help, beside the program that has it
// open.
func TestMakeRoom(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	e := must(store.Open(ctx, filepath.Join(dir, "data"), store.Options{Quota: 2 << 20, NoSync: true}))
	t.Cleanup(func() { must(0, e.Close()) })
	of := cli{t, []string{"--settings", settingsIn(t, dir), "store"}}
	of.says("leader", "status")
	st := store.New(e)
	rows := []string{st.Clusters.Key("s/Äg/c"), st.Nodes.Key("s/Äg/c/n"),
		st.Operations.Key("s/o"), st.History.Key("s/Äg/c/n"), st.Credentials.Key("s/Äg/c/i"),
		st.Tokens.Key("s/Äg/c/i"), st.Nodes.Key("s/Äg/c2/n")}
	for _, key := range rows {
		value := []byte(`{"deletion":{"operation":"s/o"}}`)
		must(e.Commit(ctx, nil, []store.Write{{Key: key, Value: value}}))
	}
	var err error // etcd measures its size after 10,000 writes at the latest
	for i := 0; err == nil && i < 10_100; i++ {
		_, err = e.Commit(ctx, nil, []store.Write{{Key: "a", Value: make([]byte, 64<<10)}})
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
	if text, err := of.run("status"); err == nil || !strings.Contains(text, "full: refuses writes") {
		t.Errorf("the status of a full store: %s, %v", text, err)
	}
	// Deletions go on: those of a cluster and its nodes without the API.
	of.refuses("", "delete-cluster", "s/Äg/absent", "--release")
	of.refuses("", "delete-cluster", "s/Äg/c")
	of.refuses("", "delete-cluster", "c", "--release")
	of.says("s/Äg/c deleted: 5 rows", "delete-cluster", "S/ÄG/C", "--release")
	left, _, err := e.Read(ctx, rows...)
	if _, other := left[rows[len(rows)-1]]; err != nil || len(left) != 1 || !other {
		t.Errorf("rows that are left: %v, %v", left, err)
	}
	of.says("is discarded", "compact")
	of.says("does not answer meanwhile", "defragment")
	of.says("accepts writes", "disarm")
	of.says("ok", "status")
	must(e.Commit(ctx, nil, []store.Write{{Key: "a", Value: []byte("1")}}))
}
