package flexnode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/release"
)

// An equal PUT changes nothing, whatever has happened meanwhile to the cluster (M6), to the facts
// and the defaults (M7). The secret may be given again or left out.
func TestAnEqualPutChangesNothing(t *testing.T) {
	g := generator(t)
	for range 500 {
		w := newWorld(t)
		d := randomDesired(g)
		first := w.put(d)
		if first.Revision == nil || !first.Changed || !first.Write {
			t.Fatalf("a new node: %+v", first)
		}
		before := *w.node
		before.Chosen.Versions = olderTable // as an older provider has chosen
		w.node = &before
		w.now = w.now.Add(time.Hour)
		w.parent.Cluster.Properties.KubernetesVersion = pick(g, "1.35.4", "1.36.0", "1.41.2")
		f := someFacts()
		f.ServerURL = pick(g, f.ServerURL, "https://moved.example")
		w.reach(f, w.parent.Cluster.Properties.KubernetesVersion)
		w.defaults(pick(g, nil, object{"artifacts": object{"mirror": "https://other.example"}},
			object{"nonsense": 1}))
		if pick(g, true, false) {
			d = withoutSecret(d)
		}
		d = must(roundTrip(d)) // as a client that reads and writes JSON
		again := w.put(d)
		if again.Changed || again.Write || again.Revision != nil || again.StoreSecret ||
			again.DropSecret {
			t.Fatalf("an equal PUT of %+v: %+v", d, again)
		}
		if diff := cmp.Diff(before, again.Node); diff != "" {
			t.Fatalf("an equal PUT changed the node:\n%s", diff)
		}
	}
}

var olderTable = api.Versions{
	Kubernetes: "1.34.1", Containerd: "2.1.0", Runc: "1.3.0", CNI: "1.8.0", NPD: "1.33.0",
}

func roundTrip(d api.Desired) (api.Desired, error) {
	var again api.Desired
	text, err := json.Marshal(d)
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	return again, err
}

// A PUT in another casing is equal, but for the casing that is shown.
func TestAnotherCasingIsShown(t *testing.T) {
	w := newWorld(t)
	first := w.put(api.Desired{})
	p := Put{ID: strings.ToUpper(nodeID), At: w.now.Add(time.Hour)}
	got, problems := Decide(p, w.node, w.last(), nil, w.parent, Secret{})
	if len(problems) > 0 || got.Changed || got.Revision != nil || !got.Write {
		t.Fatalf("%+v, %v", got, problems)
	}
	if got.Node.ID != p.ID || got.Node.ETag() != first.Node.ETag() ||
		got.Node.SystemData != first.Node.SystemData {
		t.Errorf("%+v", got.Node)
	}
}

// What the owner leaves open remains as it was chosen (M6): also when he changes something else,
// one of the versions included, after an upgrade of the cluster and with a newer table.
func TestWhatIsLeftOpenStays(t *testing.T) {
	chosen := olderTable
	newest := versionsOf(release.Set{Kubernetes: "1.36.3"}.Filled())
	with := func(change func(*api.Versions)) api.Versions {
		v := chosen
		change(&v)
		return v
	}
	runc := api.Versions{Runc: "1.3.1"}
	tests := map[string]struct{ asked, want, chosen, result api.Versions }{
		"a node that is made": {result: newest},
		"nothing is asked":    {chosen: chosen, result: chosen},
		"one version is asked": {
			want: runc, chosen: chosen, result: with(func(v *api.Versions) { v.Runc = "1.3.1" }),
		},
		"another one is asked": {
			asked: runc, want: api.Versions{Runc: "1.3.2"},
			chosen: with(func(v *api.Versions) { v.Runc = "1.3.1" }),
			result: with(func(v *api.Versions) { v.Runc = "1.3.2" }),
		},
		"a version is cleared": {
			asked:  api.Versions{Runc: "1.3.1", CNI: "1.8.0"},
			want:   api.Versions{CNI: "1.8.0"},
			chosen: with(func(v *api.Versions) { v.Runc = "1.3.1" }),
			result: with(func(v *api.Versions) {
				v.Runc = release.Set{Containerd: v.Containerd}.Filled().Runc
			}),
		},
		"all versions are cleared": {asked: runc, chosen: chosen, result: newest},
		"with a v": {
			want: api.Versions{Kubernetes: "v1.35.2"}, chosen: chosen,
			result: with(func(v *api.Versions) { v.Kubernetes = "1.35.2" }),
		},
		"an older Kubernetes is asked for a node that is made": {
			want:   api.Versions{Kubernetes: "1.34.4"},
			result: versionsOf(release.Set{Kubernetes: "1.34.4"}.Filled()),
		},
		"a later patch than the cluster's": {
			want: api.Versions{Kubernetes: "1.36.4"}, chosen: chosen,
			result: with(func(v *api.Versions) { v.Kubernetes = "1.36.4" }),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, problems := chooser{
				want: tt.want, asked: tt.asked, chosen: tt.chosen, server: "1.36.3",
			}.choose()
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			if diff := cmp.Diff(tt.result, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A node of a cluster whose version goes with none that is known must say its own, and one of a
// cluster whose own patch is not known has the one before.
func TestOpenVersionOfAnUnknownCluster(t *testing.T) {
	_, problems := chooser{server: "1.41.0"}.choose()
	if len(problems) != 1 || problems[0].Target != atKubernetes ||
		!strings.Contains(problems[0].Message, "1.41.0") {
		t.Errorf("%v", problems)
	}
	got, problems := chooser{server: "1.34.99"}.choose()
	if k, _ := release.KubernetesFor("1.34.99"); got.Kubernetes != k || len(problems) > 0 {
		t.Errorf("%+v, %v", got, problems)
	}
	if got, problems := (chooser{}).choose(); got.Kubernetes != "" || got.Containerd != "" ||
		len(problems) > 0 {
		t.Errorf("while the cluster is not known: %+v, %v", got, problems)
	}
	cleared := chooser{
		asked:  api.Versions{Kubernetes: "1.34.4"},
		chosen: api.Versions{Kubernetes: "1.34.4"},
	}
	if got, problems := cleared.choose(); got.Kubernetes != "" || len(problems) > 0 {
		t.Errorf("cleared while the cluster is not known: %+v, %v", got, problems)
	}
}

// The same through PUTs: a change of anything keeps each version that is not asked for.
func TestPutsKeepVersions(t *testing.T) {
	g := generator(t)
	for range 300 {
		w := newWorld(t)
		d := randomDesired(g)
		d.Versions = api.Versions{}
		w.put(d)
		older := *w.node
		older.Chosen.Versions = olderTable
		w.node = &older
		was := older.Chosen
		w.reach(someFacts(), "1.36.2")
		w.now = w.now.Add(time.Minute)
		d.NodeConfig.Labels = map[string]string{"changed": "yes"}
		d.Versions.Runc = pick(g, "", "1.3.1")
		if got := w.put(d); got.Revision == nil {
			t.Fatal("a change made no revision")
		}
		if d.Versions.Runc != "" {
			was.Versions.Runc = d.Versions.Runc
		}
		if diff := cmp.Diff(was, w.node.Chosen); diff != "" {
			t.Fatalf("a change of a label changed what was chosen:\n%s", diff)
		}
	}
}

// A cluster that was upgraded far away from a node keeps its owner from nothing but from asking for
// versions that do not go with it.
func TestAnOldNodeCanBeChanged(t *testing.T) {
	w := newWorld(t)
	w.put(api.Desired{Versions: api.Versions{Kubernetes: "1.34.4"}})
	w.reach(someFacts(), "1.40.0")
	changed := api.Desired{
		Versions:   api.Versions{Kubernetes: "1.34.4"},
		NodeConfig: api.NodeConfig{MaxPods: 9},
	}
	w.put(changed)
	changed.Versions.Kubernetes = "1.34.5"
	if _, problems := w.decide(changed); len(problems) != 1 ||
		problems[0].Target != "properties.versions.kubernetes" {
		t.Errorf("%v", problems)
	}
}

// Clearing a field resets it.
func TestClearingAFieldResetsIt(t *testing.T) {
	w := newWorld(t)
	w.put(api.Desired{})
	empty := w.config(w.last())
	g := generator(t)
	for range 200 {
		w.now = w.now.Add(time.Second)
		w.put(randomDesired(g))
		w.put(api.Desired{Versions: w.node.Desired.Versions})
		w.put(api.Desired{})
		if got := w.config(w.last()); got != empty {
			t.Fatalf("something is left:\n%s", cmp.Diff(empty, got))
		}
	}
}

// configVersion is the clock's, and always above the one before: also when the clock goes back, and
// after a tombstone.
func TestVersionsGoUp(t *testing.T) {
	g := generator(t)
	w := newWorld(t)
	last := int64(0)
	for i := range 2000 {
		w.now = w.now.Add(time.Duration(g.IntN(7)-3) * time.Second)
		switch g.IntN(6) {
		case 0:
			if w.node != nil {
				w.remove()
			}
			continue
		case 1:
			if w.node != nil {
				f := someFacts()
				f.ServerURL = "https://" + string(rune('a'+i%26)) + ".example"
				w.reach(f, "1.35.4")
				w.refresh()
			}
		case 2:
			w.unreached()
			w.put(randomDesired(g))
			w.reach(someFacts(), "1.35.4")
			w.refresh()
		default:
			w.put(randomDesired(g))
		}
		if w.node == nil {
			continue
		}
		if v := w.node.Revision; v < last || w.node.Assigned != v || w.last() == nil {
			t.Fatalf("step %d: version %d after %d; %+v", i, v, last, w.node)
		}
		last = w.node.Revision
	}
	if got := NextVersion(5, time.Unix(100, 0)); got != 100 {
		t.Errorf("the next version is %d, not the clock's", got)
	}
	if got := NextVersion(100, time.Unix(100, 0)); got != 101 {
		t.Errorf("the next version is %d, not one more", got)
	}
}

// Each PUT that changes what is wanted makes another ETag, also while there is no revision.
func TestETags(t *testing.T) {
	w := newWorld(t)
	w.unreached()
	known := map[string]bool{}
	add := func(what string) {
		t.Helper()
		if e := w.node.ETag(); known[e] || !strings.HasPrefix(e, `"uid`) {
			t.Errorf("%s: the ETag %s", what, e)
		} else {
			known[e] = true
		}
	}
	w.put(api.Desired{})
	add("made")
	w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: 9}})
	add("changed while waiting")
	w.reach(someFacts(), "1.35.4")
	w.refresh()
	add("rendered")
	w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: 10}})
	add("changed")
	held := *w.node
	held.Assigned--
	w.node = &held
	add("held back")
	w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: 11}})
	add("changed while held back")
	if w.node.Assigned != held.Assigned || w.node.Revision == held.Revision {
		t.Errorf("a PUT moved what agents are offered: %+v", w.node)
	}
	w.remove()
	w.put(api.Desired{})
	add("made again") // M4: another uid
}

// A node in Failed can be read and written back (the review's minor finding on put.go), and is
// tried again.
func TestAFailedNodeIsWrittenBack(t *testing.T) {
	w := newWorld(t)
	w.unreached()
	w.put(api.Desired{Versions: api.Versions{Kubernetes: "1.36.1"}})
	if w.node.State != api.Creating || w.node.Revision != 0 {
		t.Fatalf("%+v", w.node)
	}
	w.reach(someFacts(), "1.35.4")
	if r := w.refresh(); r != nil || w.node.State != api.Failed ||
		!strings.Contains(w.node.Reason, "newer than the cluster") {
		t.Fatalf("%+v", w.node)
	}
	shown := Shown(*w.node, nil, nil, nil)
	if c := shown.Properties.Status.Conditions; len(c) != 1 || c[0].Type != "Resolved" {
		t.Errorf("the status of a failed node: %+v", c)
	}
	d, _, err := ReadPut(must(json.Marshal(shown)), nodeID)
	if err != nil {
		t.Fatalf("what a GET has shown is refused: %v", err)
	}
	if _, problems := w.decide(d); len(problems) != 1 { // still too new
		t.Errorf("%v", problems)
	}
	w.reach(someFacts(), "1.36.1")
	w.put(d)
	if w.node.State != "" || w.node.Reason != "" || w.node.Revision == 0 {
		t.Errorf("after the cluster was upgraded: %+v", w.node)
	}
	if s := Shown(*w.node, w.last(), nil, nil).Properties; s.Status != nil ||
		s.ProvisioningState != api.Succeeded {
		t.Errorf("the reason remains in the status: %+v", s)
	}
}

// A URL that is asked for makes a node wait, and changes nothing else.
func TestAskingForAURL(t *testing.T) {
	w := newWorld(t)
	p := Put{ID: nodeID, URL: true, At: w.now, NewUID: "u"}
	made, _ := Decide(p, nil, nil, nil, w.parent, Secret{})
	if made.Node.State != api.Creating || made.Revision == nil {
		t.Errorf("%+v", made)
	}
	done := made.Node
	done.State = ""
	again, _ := Decide(p, &done, made.Revision, nil, w.parent, Secret{})
	if again.Node.State != api.Updating || !again.Write || again.Changed || again.Revision != nil {
		t.Errorf("%+v", again)
	}
}

// The subnet of a node is kept, and is asked for once.
func TestSubnetStays(t *testing.T) {
	w := newWorld(t)
	w.put(api.Desired{})
	if w.node.Chosen.PodCIDR != "" {
		t.Errorf("a subnet without a pool: %+v", w.node.Chosen)
	}
	w.parent.Cluster.Properties.PodCIDR, w.parent.Cluster.Properties.NodeCIDRMask =
		"10.200.0.0/16", 24
	if got := w.put(api.Desired{}); got.Changed {
		t.Error("a pool changed a node that nobody has changed")
	}
	w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: 9}})
	subnet := w.node.Chosen.PodCIDR
	if !strings.HasPrefix(subnet, "10.200.") ||
		!strings.Contains(w.config(w.last()), `"podCIDR":"`+subnet+`"`) {
		t.Errorf("%+v", w.node.Chosen)
	}
	w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: 10}})
	if w.node.Chosen.PodCIDR != subnet {
		t.Errorf("the subnet changed from %s to %s", subnet, w.node.Chosen.PodCIDR)
	}
}

// Pods reach the network of the cluster's subnets with their own addresses, unless the operator has
// said which networks these are. A node that was rendered without it stays so, whatever its owner
// changes and becomes of the cluster.
func TestPodNetwork(t *testing.T) {
	w := newWorld(t)
	network := func() any {
		t.Helper()
		whole := must(Config(*w.last(), w.layers[w.last().Defaults], w.parent.FactsLayer, Grants{}))
		return whole["cni"].(object)[directNetworks]
	}
	change := func(maxPods int) {
		t.Helper()
		w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: maxPods}})
	}
	change(9)
	pool := &w.parent.Cluster.Properties
	pool.PodCIDR, pool.NodeCIDRMask = "FD00:1::/48", 64
	change(9)
	change(10)
	facts := someFacts()
	facts.DNSServiceIP = "10.96.0.11"
	w.reach(facts, "1.35.4")
	if w.refresh() == nil || network() != nil {
		t.Errorf("a node without has it now: %v", network())
	}
	w.remove()
	for _, maxPods := range []int{9, 10} {
		change(maxPods)
		if diff := cmp.Diff([]any{"fd00:1::/48"}, network()); diff != "" {
			t.Errorf("maxPods %d (-want +got):\n%s", maxPods, diff)
		}
	}
	given := []any{"10.0.0.0/8"}
	w.defaults(object{"cni": object{directNetworks: given}})
	change(11)
	if diff := cmp.Diff(given, network()); diff != "" {
		t.Errorf("the operator's is lost (-want +got):\n%s", diff)
	}
	w.defaults(nil)
	for _, none := range []string{"::ffff:10.0.0.0/112", ""} {
		pool.PodCIDR = none
		if got := w.parent.podNetwork(); got != "" {
			t.Errorf("%q gives %q", none, got)
		}
	}
}

// A node that could not be rendered before has the network as soon as it can be.
func TestPodNetworkOfANodeThatWaits(t *testing.T) {
	w := newWorld(t)
	w.unreached()
	pool := &w.parent.Cluster.Properties
	pool.PodCIDR, pool.NodeCIDRMask = "10.200.0.0/16", 24
	w.put(api.Desired{})
	w.reach(someFacts(), "1.35.4")
	if r := w.refresh(); r == nil ||
		!strings.Contains(w.config(r), `"nonMasqueradeCIDRs":["10.200.0.0/16"]`) {
		t.Errorf("%+v", r)
	}
}

// Who made a node and who changed it last.
func TestSystemData(t *testing.T) {
	w := newWorld(t)
	w.put(api.Desired{})
	made := w.now.UTC()
	w.now = w.now.Add(time.Hour)
	p := Put{
		ID: nodeID, Desired: api.Desired{NodeConfig: api.NodeConfig{MaxPods: 9}}, At: w.now,
		By: "robot", ByType: "Application",
	}
	got, _ := Decide(p, w.node, w.last(), nil, w.parent, Secret{})
	want := api.SystemData{
		CreatedBy: "ops", CreatedByType: "User", CreatedAt: made, LastModifiedBy: "robot",
		LastModifiedByType: "Application", LastModifiedAt: made.Add(time.Hour),
	}
	if diff := cmp.Diff(want, got.Node.SystemData); diff != "" {
		t.Error(diff)
	}
	if r := got.Revision; r.By != "robot" || r.Why != "put" || !r.Created.Equal(p.At) {
		t.Errorf("%+v", r)
	}
}

// The last ten revisions are kept, and the one that is assigned.
func TestHistory(t *testing.T) {
	w := newWorld(t)
	w.put(api.Desired{})
	assigned := w.node.Assigned
	for i := range 15 {
		held := *w.node
		held.Assigned = assigned
		w.node = &held
		w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: 10 + i}})
	}
	if n := len(w.history.revisions); n != Kept+1 {
		t.Errorf("%d revisions are kept", n)
	}
	if must(w.history.Find(assigned)) == nil {
		t.Error("the assigned revision is gone")
	}
	versions := map[int64]bool{}
	for _, r := range w.history.revisions {
		versions[r.version] = true
	}
	if len(versions) != Kept+1 {
		t.Error("versions come twice")
	}
}

// A row of the history is read as far as it is needed, and refused when it is none.
func TestHistoryRow(t *testing.T) {
	w := newWorld(t)
	w.put(api.Desired{})
	w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: 11}})
	row := must(w.history.Row())
	var whole struct{ Revisions []Revision }
	if err := json.Unmarshal(row, &whole); err != nil || len(whole.Revisions) != 2 {
		t.Fatalf("%v: %s", err, row)
	}
	var read History
	if err := read.ReadRow(row); err != nil {
		t.Fatal(err)
	}
	for _, want := range whole.Revisions {
		if diff := cmp.Diff(&want, must(read.Find(want.Version))); diff != "" {
			t.Error(diff)
		}
	}
	if again := must(read.Row()); !bytes.Equal(row, again) {
		t.Errorf("%s\nbecomes\n%s", row, again)
	}
	const other = `{"revisions":[{"version":7,"own":{},"why":8}]}` // of a newer program
	if err := read.ReadRow([]byte(other)); err != nil {
		t.Fatal(err)
	}
	if got, err := read.Find(7); err == nil {
		t.Errorf("%+v is read", got)
	}
	for _, empty := range []string{`{}`, `{"revisions":null}`, `{"revisions":[]}`} {
		if err := read.ReadRow([]byte(empty)); err != nil || len(read.revisions) != 0 {
			t.Errorf("%s: %v", empty, err)
		}
	}
	for _, bad := range []string{"", "[]", "{", `{"revisions":[{}]}`, `{"revisions":[1]}`,
		`{"revisions":[{"version":"x"}]}`, string(row[:len(row)-1]), string(row) + "}"} {
		if err := read.ReadRow([]byte(bad)); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}

// Few revisions are kept of a node with large configurations, but the one that is assigned.
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
		if must(h.Find(version)) == nil {
			t.Errorf("revision %d is gone", version)
		}
	}
	if must(h.Find(20)) != nil {
		t.Error("older ones are kept")
	}
}

// A node that would take much of a transaction by itself is refused.
func TestALargeNodeIsRefused(t *testing.T) {
	labels := map[string]string{}
	for i := range 2000 {
		labels[fmt.Sprintf("example.com/label-%d", i)] = strings.Repeat("x", 40)
	}
	p := Put{ID: nodeID, At: time.Now(), Desired: api.Desired{
		NodeConfig: api.NodeConfig{Labels: labels}}}
	_, problems := Decide(p, nil, nil, nil, newWorld(t).parent, Secret{})
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "larger than 65536 bytes") {
		t.Errorf("%v", problems)
	}
}
