package store

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

// formerStore is what a provider of the release before has stored, and what it has answered.
type formerStore struct {
	rows    map[string]json.RawMessage
	answers map[string]api.FlexNodeConfig
	keys    seal.Ring
	m       Migration
}

func readFormer(t *testing.T) formerStore {
	t.Helper()
	var f formerStore
	var settings struct {
		Defaults map[string]any `json:"defaults"`
		TenantID string         `json:"tenantId"`
	}
	for name, into := range map[string]any{
		"rows": &f.rows, "answers": &f.answers, "keys": &f.keys, "settings": &settings,
	} {
		text, err := os.ReadFile(filepath.Join("testdata", "v1", name+".json"))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f.m = Migration{
		Defaults: settings.Defaults, TenantID: settings.TenantID, Renderer: "v2",
		Now: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC),
	}
	return f
}

// stored is the former rows in a database.
func (f formerStore) stored(t *testing.T) *Memory {
	t.Helper()
	m := NewMemory()
	for key, value := range f.rows {
		write(t, m, Write{Key: key, Value: value})
	}
	return m
}

const (
	formerSub     = "11111111-2222-3333-4444-555555555555"
	formerFactory = formerSub + "/edge/factory"
	// formerIdentity is that of the nodes with a service principal.
	formerIdentity = "app:99999999-0000-0000-0000-000000000000/" +
		"aaaaaaaa-0000-0000-0000-000000000001"
)

// Every node is served what it was served before, under the same version.
func TestMigratedNodesAreServedTheSame(t *testing.T) {
	f := readFormer(t)
	s := New(f.stored(t))
	if err := Migrate(t.Context(), s, f.m); err != nil {
		t.Fatal(err)
	}
	uids := map[string]bool{}
	for key, answer := range f.answers {
		n := get(t, s.Nodes, key)
		if n.UID == "" || uids[n.UID] || n.ID != answer.ID {
			t.Errorf("%s: uid %q, id %s", key, n.UID, n.ID)
		}
		uids[n.UID] = true
		if diff := cmp.Diff(answer.Properties.Desired, n.Desired); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
		if answer.Properties.Config == nil {
			if n.Revision != 0 ||
				strconv.FormatInt(n.Floor, 10) != answer.Properties.ConfigVersion {
				t.Errorf("%s was never rendered: %+v", key, n)
			}
			continue
		}
		r, err := get(t, s.History, key).Find(n.Assigned)
		was := answer.Properties.ConfigVersion
		if err != nil || r == nil || n.Revision != n.Assigned || strconv.FormatInt(r.Version, 10) != was {
			t.Errorf("%s: %+v, %+v; want version %s", key, n, r, was)
		}
		defaults, err := flexnode.ReadLayer(get(t, s.Layers, r.Defaults))
		if err != nil {
			t.Error(err)
		}
		facts, err := flexnode.ReadLayer(get(t, s.Layers, r.Facts))
		if err != nil {
			t.Error(err)
		}
		config, err := flexnode.Config(*r, defaults, facts, flexnode.Grants{})
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(answer.Properties.Config, plain(t, config)); diff != "" {
			t.Errorf("%s is served another configuration: %s", key, diff)
		}
		if cluster := get(t, s.Clusters, flexnode.ClusterOf(key)); n.Facts != cluster.Facts {
			t.Errorf("%s would be rendered again: its facts are %s, its cluster's %s", key,
				n.Facts, cluster.Facts)
		}
	}
}

// plain is a value as it is after JSON.
func plain(t *testing.T, value map[string]any) (got map[string]any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// get reads a row that must be there.
func get[T any](t *testing.T, table Table[T], key string) T {
	t.Helper()
	row, err := table.Get(t.Context(), key)
	if err != nil || !row.Exists() {
		t.Fatalf("%s: exists %v, %v", table.Key(key), row.Exists(), err)
	}
	return row.Value
}

func keysOf[T any](t *testing.T, table Table[T]) []string {
	t.Helper()
	rows, _, err := table.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, r := range rows {
		keys = append(keys, strings.TrimPrefix(r.Key, formerSub+"/edge/"))
	}
	return keys
}

func TestMigratedRows(t *testing.T) {
	f := readFormer(t)
	s := New(f.stored(t))
	if err := Migrate(t.Context(), s, f.m); err != nil {
		t.Fatal(err)
	}
	n := get(t, s.Nodes, formerFactory+"/principal")
	if n.Identity != formerIdentity {
		t.Errorf("identity %s, want %s", n.Identity, formerIdentity)
	}
	secret := get(t, s.Secrets, formerFactory+"/principal")
	text, err := f.keys.Open("secrets/"+formerFactory+"/principal", secret.Box)
	if err != nil || string(text) != "hush-hush" || secret.Version != 1 || n.SecretVersion != 1 {
		t.Errorf("secret %q of version %d, node has %d, %v", text, secret.Version, n.SecretVersion,
			err)
	}
	c := get(t, s.Credentials, n.Credential)
	if c.State != Live || c.UID != n.UID || c.Config != n.Revision ||
		c.Node != formerFactory+"/principal" {
		t.Errorf("credential %+v of node %+v", c, n)
	}
	bundle, err := f.keys.Open("bundles/"+n.Credential, get(t, s.Bundles, n.Credential).Box)
	if err != nil || !strings.Contains(string(bundle), "hush-hush") {
		t.Errorf("bundle %s, %v", bundle, err)
	}
	token := get(t, s.Nodes, formerFactory+"/token").Credential
	if id := get(t, s.Credentials, token).TokenID; get(t, s.Tokens, formerFactory+"/"+id) != token {
		t.Errorf("the token %s belongs to another", id)
	}
	failed := get(t, s.Nodes, formerFactory+"/failed")
	if failed.State != api.Failed || !strings.Contains(failed.Reason, "1.99.0") {
		t.Errorf("%+v", failed)
	}
	if arc := get(t, s.Status, formerFactory+"/arc"); arc.Report.AgentVersion != "1.2.3" {
		t.Errorf("status %+v", arc)
	}
	sub := get(t, s.Subscriptions, formerSub)
	if sub.State != "Registered" || len(sub.Properties) == 0 {
		t.Errorf("subscription %+v", sub)
	}
	for name, got := range map[string][2][]string{
		"clusters": {keysOf(t, s.Clusters), {"factory", "harbour"}},
		"secrets":  {keysOf(t, s.Secrets), {"factory/principal"}},
		"podcidrs": {keysOf(t, s.PodCIDRs), {
			"factory/00000005", "factory/0000000b", "factory/00000021", "factory/00000071",
			"factory/000000b4",
		}},
	} {
		if diff := cmp.Diff(got[1], got[0]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	closed := func(key string) bool { return strings.HasPrefix(key, "closed/") }
	if got := keysOf(t, s.Credentials); len(got) != 3 || slices.ContainsFunc(got, closed) {
		t.Errorf("credentials %v", got)
	}
}

// A deletion wipes the machine if the owner has deleted the node, and not if its registration was.
// Each is found where those of today are.
func TestMigratedTombstones(t *testing.T) {
	f := readFormer(t)
	s := New(f.stored(t))
	if err := Migrate(t.Context(), s, f.m); err != nil {
		t.Fatal(err)
	}
	for key, wipe := range map[string]bool{
		"factory/gone": true, "factory/going": true, "closed/lost": false,
	} {
		stone := tombstoneOf(t, s, formerSub+"/edge/"+key)
		if stone.Wipe != wipe || stone.Revision == 0 || stone.Deleted.IsZero() {
			t.Errorf("%s: %+v", key, stone)
		}
	}
	if n := len(keysOf(t, s.Tombstones)); n != 3 {
		t.Errorf("%d tombstones", n)
	}
	if got := tombstoneOf(t, s, formerFactory+"/gone").Identity; got != formerIdentity {
		t.Errorf("it may be known to %s, want %s", got, formerIdentity)
	}
}

// tombstoneOf is the only tombstone of a node.
func tombstoneOf(t *testing.T, s *Store, nodeKey string) flexnode.Tombstone {
	t.Helper()
	row, err := s.Tombstones.Get(t.Context(), nodeKey)
	if err != nil {
		t.Fatal(err)
	}
	stone, ok, err := row.Value.Of("")
	if err != nil || !ok || len(row.Value.Stored) != 1 || stone.UID == "" {
		t.Fatalf("the tombstones of %s are %s: %v", nodeKey, row.Value.Stored, err)
	}
	return stone
}

// dump is all that is in a database.
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

// A migration that is killed at any write, with or without that write, is finished by the next
// start, and the rows are the same.
func TestMigrationKilledAnywhere(t *testing.T) {
	f := readFormer(t)
	whole := f.stored(t)
	if err := Migrate(t.Context(), New(whole), f.m); err != nil {
		t.Fatal(err)
	}
	want := dump(t, whole)
	for key := range want {
		if strings.HasPrefix(key, former) && key != formerSchema {
			t.Errorf("%s is left", key)
		}
	}
	killed := errors.New("killed")
	for n := 1; ; n++ {
		first, commits := f.stored(t), 0
		reached := false
		kill := func(Call) error {
			if commits++; commits >= n {
				reached = true
				return killed
			}
			return nil
		}
		if n%2 == 0 {
			first.After(kill)
		} else {
			first.Before(func(c Call) error {
				if c.Op != "commit" {
					return nil
				}
				return kill(c)
			})
		}
		err := Migrate(t.Context(), New(first), f.m)
		if reached && !errors.Is(err, killed) || !reached && err != nil {
			t.Fatalf("killed at %d: %v", n, err)
		}
		first.Before(nil)
		first.After(nil)
		if err := Migrate(t.Context(), New(first.Another()), f.m); err != nil {
			t.Fatalf("after it was killed at %d: %v", n, err)
		}
		if diff := cmp.Diff(want, dump(t, first)); diff != "" {
			t.Fatalf("after it was killed at %d: %s", n, diff)
		}
		if !reached {
			t.Logf("%d writes", n)
			return
		}
	}
}

// dying is a Backend that is killed at a commit, with or without it.
type dying struct {
	Backend
	left int // commits until then
	with bool
}

var errDying = errors.New("killed")

func (d *dying) Commit(
	ctx context.Context, conditions []Condition, writes []Write,
) (int64, error) {
	if d.left--; d.left > 0 {
		return d.Backend.Commit(ctx, conditions, writes)
	}
	if d.left == 0 && d.with {
		if _, err := d.Backend.Commit(ctx, conditions, writes); err != nil {
			return 0, err
		}
	}
	return 0, errDying
}

// As on memory, on etcd: each run goes on with what the killed ones before it have left, and is
// killed one commit later than the one before.
func TestMigrationKilledOnEtcd(t *testing.T) {
	f := readFormer(t)
	whole := f.stored(t)
	if err := Migrate(t.Context(), New(whole), f.m); err != nil {
		t.Fatal(err)
	}
	want := dump(t, whole)
	for _, with := range []bool{false, true} {
		e := embedded(t, t.TempDir(), Options{NoSync: true})
		for key, value := range dump(t, f.stored(t)) {
			put(t, e, key, value)
		}
		killed := 0
		for ; ; killed++ {
			err := Migrate(t.Context(), New(&dying{Backend: e, left: killed + 1, with: with}), f.m)
			if err == nil {
				break
			}
			if !errors.Is(err, errDying) {
				t.Fatalf("killed %d times: %v", killed, err)
			}
		}
		if diff := cmp.Diff(want, dump(t, e)); diff != "" || killed < 5 {
			t.Errorf("killed %d times: %s", killed, diff)
		}
	}
}

// Replicas that start together migrate once.
func TestReplicasMigrateTogether(t *testing.T) {
	f := readFormer(t)
	m := f.stored(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := Migrate(t.Context(), New(m.Another()), f.m); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	whole := f.stored(t)
	if err := Migrate(t.Context(), New(whole), f.m); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dump(t, whole), dump(t, m)); diff != "" {
		t.Error(diff)
	}
}

// More rows than fit into one transaction, or into one page.
func TestMigrationOfManyNodes(t *testing.T) {
	f := readFormer(t)
	sample := f.rows[formerNodes+formerFactory+"/principal"]
	const n = 350
	for i := range n {
		name := "many-" + strconv.Itoa(i)
		text := strings.ReplaceAll(string(sample), "Principal", name)
		f.rows[formerNodes+formerFactory+"/"+name] = json.RawMessage(text)
	}
	s := New(f.stored(t))
	if err := Migrate(t.Context(), s, f.m); err != nil {
		t.Fatal(err)
	}
	nodes, histories := len(keysOf(t, s.Nodes)), len(keysOf(t, s.History))
	if nodes != n+7 || histories != n+5 {
		t.Errorf("%d nodes, %d histories", nodes, histories)
	}
}

func TestSchema(t *testing.T) {
	version := New(nil).Meta.Key(schemaRow)
	for name, tt := range map[string]struct {
		rows map[string]string
		want string
	}{
		"empty":                {nil, ""},
		"ours":                 {map[string]string{version: "2", formerSchema: "2"}, ""},
		"newer":                {map[string]string{version: "3", formerSchema: "3"}, "run a newer"},
		"newer, former":        {map[string]string{formerSchema: "7"}, "its rows have version 7"},
		"of the one before":    {map[string]string{formerSchema: "1"}, ""},
		"not a version at all": {map[string]string{version: `"x"`}, "run a newer"},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMemory()
			for key, value := range tt.rows {
				put(t, m, key, value)
			}
			err := Migrate(t.Context(), New(m), Migration{})
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v; want %q", err, tt.want)
				}
				before, after := maps.Keys(tt.rows), maps.Keys(dump(t, m))
				if diff := cmp.Diff(slices.Sorted(before), slices.Sorted(after)); diff != "" {
					t.Errorf("a refused store was changed: %s", diff)
				}
				return
			}
			if got := dump(t, m); err != nil || got[version] != "2" || got[formerSchema] != "2" {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// While one replica migrates another waits until its context ends.
func TestMigrationWaits(t *testing.T) {
	f := readFormer(t)
	m := f.stored(t)
	put(t, m, New(m).Meta.Key(lockRow), `"held"`)
	ctx, cancel := context.WithCancel(t.Context())
	told := ""
	f.m.Tell = func(what string) { told = what; cancel() }
	err := Migrate(ctx, New(m), f.m)
	if !errors.Is(err, context.Canceled) || !strings.Contains(told, "another replica") {
		t.Errorf("%v, %q", err, told)
	}
}

// While a replica of the release before leads a cluster nothing is migrated: what it would still
// write is lost. One that has been killed is waited for.
func TestMigrationBesideTheReleaseBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := readFormer(t)
		m := f.stored(t)
		leader := Write{Key: formerLeaders + formerFactory + "/5d8b", Value: []byte(`"replica"`)}
		write(t, m, leader)
		before := dump(t, m)
		err := Migrate(t.Context(), New(m), f.m)
		if err == nil || !strings.Contains(err.Error(), "stop them all") {
			t.Errorf("%v", err)
		}
		if diff := cmp.Diff(before, dump(t, m)); diff != "" {
			t.Errorf("a refused store was changed: %s", diff)
		}
		waited := false
		f.m.Tell = func(what string) {
			if !waited && strings.Contains(what, "release before") {
				waited = true
				write(t, m, Write{Key: leader.Key, Delete: true})
			}
		}
		if err := Migrate(t.Context(), New(m), f.m); err != nil || !waited {
			t.Errorf("after it has ended: %v", err)
		}
	})
}
