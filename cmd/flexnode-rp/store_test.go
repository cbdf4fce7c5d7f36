package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// A full store accepts writes again after the steps in its help, beside the program that has it
// open.
func TestMakeRoom(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	e := must(store.Open(ctx, filepath.Join(dir, "data"),
		store.Options{Quota: 2 << 20, NoSync: true}))
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	settings := settingsIn(t, dir)
	run := func(args ...string) (string, error) {
		return run(t, append([]string{"--settings", settings, "store"}, args...)...)
	}
	expect := func(want string, args ...string) {
		t.Helper()
		if text, err := run(args...); err != nil || !strings.Contains(text, want) {
			t.Errorf("%v: %s, %v; want %q", args, text, err, want)
		}
	}
	expect("leader", "status")
	st := store.New(e)
	rows := []string{st.Clusters.Key("s/Äg/c"), st.Nodes.Key("s/Äg/c/n"),
		st.Operations.Key("s/o"), st.History.Key("s/Äg/c/n"), st.Credentials.Key("s/Äg/c/i"),
		st.Tokens.Key("s/Äg/c/i"), st.Nodes.Key("s/Äg/c2/n")}
	for _, key := range rows {
		value := []byte(`{"deletion":{"operation":"s/o"}}`)
		must(e.Commit(ctx, nil, []store.Write{{Key: key, Value: value}}))
	}
	var err error
	// etcd measures its size after 10,000 writes at the latest.
	for i := 0; err == nil && i < 10_100; i++ {
		_, err = e.Commit(ctx, nil, []store.Write{{Key: "a", Value: make([]byte, 64<<10)}})
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
	if text, err := run("status"); err == nil ||
		!strings.Contains(text, "full: refuses writes") {
		t.Errorf("the status of a full store: %s, %v", text, err)
	}
	// Deletions go on: those of a cluster and its nodes without the API.
	for _, args := range [][]string{{"s/Äg/absent", "--release"}, {"s/Äg/c"}, {"c", "--release"}} {
		if text, err := run(append([]string{"delete-cluster"}, args...)...); err == nil {
			t.Errorf("delete-cluster %v: %s", args, text)
		}
	}
	expect("s/Äg/c deleted: 5 rows", "delete-cluster", "S/ÄG/C", "--release")
	left := map[string]int{}
	for _, key := range rows {
		got, _, err := e.Read(ctx, key)
		must(0, err)
		left[key] = len(got)
	}
	if last := len(rows) - 1; left[rows[last]] != 1 || len(slices.DeleteFunc(rows[:last],
		func(key string) bool { return left[key] == 0 })) > 0 {
		t.Errorf("rows that are left: %v", left)
	}
	expect("is discarded", "compact")
	expect("does not answer meanwhile", "defragment")
	expect("accepts writes", "disarm")
	expect("ok", "status")
	must(e.Commit(ctx, nil, []store.Write{{Key: "a", Value: []byte("1")}}))
}
