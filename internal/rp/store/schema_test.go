package store

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// A running program writes nothing more, in any way, once a newer one has changed the form of the
// rows; beside a newer one that keeps the form, and after a restore of the store, it continues.
func TestOlderProgramsAreFenced(t *testing.T) {
	t.Run("memory", func(t *testing.T) { checkFence(t, storetest.NewMemory()) })
	t.Run("etcd", func(t *testing.T) { checkFence(t, embedded(t, t.TempDir(), Options{})) })
}

func checkFence(t *testing.T, b Backend) {
	older, newer := New(b), New(b)
	must(0, older.BeginSchema(t.Context()))
	raise := func(version string) { put(t, b, newer.Meta.Key(schemaRow), version) }
	try := func() error {
		_, err := older.Update(t.Context(), "", nil, func(v *View) error {
			return older.PodCIDRs.Set(v, "a", "x")
		})
		return err
	}
	set(t, newer, "b", "another form is not needed for this")
	isError(t, "beside a newer one", try(), nil)
	raise("2") // as after a restore: the same version at another revision
	isError(t, "after the row was written again", try(), nil)
	raise("3")
	isError(t, "after the form has changed", try(), ErrNewer)
	_, err := older.UpdateEach(t.Context(), []string{"a"}, Each{
		One: func(v *View, key string) error { return older.PodCIDRs.Set(v, key, "y") },
	})
	isError(t, "many together", err, ErrNewer)
	_, err = older.Commit(t.Context(), nil, []Write{{Key: older.PodCIDRs.Key("a"), Delete: true}})
	isError(t, "a commit", err, ErrNewer)
	equal(t, "what it has written", must(older.PodCIDRs.Get(t.Context(), "a")).Value, "x")
	isError(t, "a start", newer.HoldSchema(t.Context()), ErrNewer)
}

// An empty store gets the version of this program; one of another version is refused, unchanged.
func TestBeginSchema(t *testing.T) {
	version := New(nil).Meta.Key(schemaRow)
	for name, tt := range map[string]struct {
		rows map[string]string
		want string
	}{
		"empty":                {nil, ""},
		"ours":                 {map[string]string{version: "2"}, ""},
		"newer":                {map[string]string{version: "3"}, "its rows have version 3"},
		"not a version at all": {map[string]string{version: `"x"`}, "run a newer"},
	} {
		t.Run(name, func(t *testing.T) {
			m := storetest.NewMemory()
			for key, value := range tt.rows {
				put(t, m, key, value)
			}
			s := New(m)
			err := s.BeginSchema(t.Context())
			if tt.want != "" {
				refused(t, "the start", err, tt.want)
				equal(t, "a refused store", dump(t, m), tt.rows)
				return
			}
			got := dump(t, m)
			if err != nil || got[version] != "2" || len(got) != 1 || !s.HasSchema() {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// A process that waits for a newer form is notified of it, and not of anything else.
func TestWaitForNewer(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		must(0, s.BeginSchema(t.Context()))
		following(t, s)
		told := make(chan error, 1)
		go func() { told <- s.WaitForNewer(t.Context()) }()
		put(t, m, s.Meta.Key(schemaRow), "2")
		time.Sleep(time.Minute)
		select {
		case err := <-told:
			t.Fatalf("before: %v", err)
		default:
		}
		put(t, m, s.Meta.Key(schemaRow), "3")
		isError(t, "what it returns", <-told, ErrNewer)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		isError(t, "after its end", New(storetest.NewMemory()).WaitForNewer(ctx), nil)
	})
}

// dump returns the whole content of a database.
func dump(t *testing.T, b Backend) map[string]string {
	t.Helper()
	page, err := b.Scan(t.Context(), "/", "", 10_000, 0)
	if err != nil || page.More {
		t.Fatal(page.More, err)
	}
	all := map[string]string{}
	for _, kv := range page.KVs {
		all[kv.Key] = string(kv.Value)
	}
	return all
}
