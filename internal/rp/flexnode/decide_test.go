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
)

// An equal PUT changes nothing, whatever has changed in the cluster (M6), the facts and the
// defaults (M7). The secret may be given again or omitted.
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
		text := must(json.Marshal(d)) // by a client that reads and writes JSON
		d = Desired{}
		must(0, json.Unmarshal(text, &d))
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

// A pause makes no configuration and revokes nothing. A rollback does not resume the node.
func TestPausing(t *testing.T) {
	g := generator(t)
	for range 200 {
		w := newWorld(t)
		d := randomDesired(g)
		d.UpgradePolicy.Paused = false
		w.put(d)
		before, first := *w.node, w.config(w.last())
		w.now = w.now.Add(time.Hour)
		d.UpgradePolicy.Paused = true
		again := w.put(d)
		if again.Changed || !again.Write || again.Revision != nil || again.StoreSecret ||
			again.DropSecret || again.Offered != nil {
			t.Fatalf("paused: %+v", again)
		}
		want := before
		want.Desired.UpgradePolicy.Paused = true
		want.SystemData.LastModifiedAt = w.now.UTC()
		if diff := cmp.Diff(want, again.Node); diff != "" {
			t.Fatalf("pausing changed more:\n%s", diff)
		}
		d.NodeConfig.MaxPods++
		w.put(d)
		if strings.Contains(w.config(w.last()), "paused") {
			t.Fatalf("agents receive it: %s", w.config(w.last()))
		}
		w.now = w.now.Add(time.Hour)
		must(w.rollBack(before.Revision))
		if !w.node.Desired.UpgradePolicy.Paused {
			t.Fatal("a rollback has resumed the node")
		}
		if got := w.config(w.last()); got != first {
			t.Fatalf("rolled back:\n%s", cmp.Diff(first, got))
		}
	}
}

// A PUT in another casing is equal, except for the casing that is shown.
func TestAnotherCasingIsShown(t *testing.T) {
	w := newWorld(t)
	first := w.put(Desired{})
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

// Clearing a field resets it.
func TestClearingAFieldResetsIt(t *testing.T) {
	w := newWorld(t)
	w.put(Desired{})
	empty := w.config(w.last())
	g := generator(t)
	for range 200 {
		w.now = w.now.Add(time.Second)
		w.put(randomDesired(g))
		w.put(Desired{Versions: w.node.Desired.Versions})
		w.put(Desired{})
		if got := w.config(w.last()); got != empty {
			t.Fatalf("something is left:\n%s", cmp.Diff(empty, got))
		}
	}
}

// configVersion follows the clock, and is always above the previous one and above a tombstone's.
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
	expect(t, "the next version, by the clock", NextVersion(5, time.Unix(100, 0)), 100)
	expect(t, "the next version, one more", NextVersion(100, time.Unix(100, 0)), 101)
}

// Each PUT that changes the desired state makes another ETag, even while there is no revision.
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
	w.put(Desired{})
	add("made")
	w.put(Desired{NodeConfig: NodeConfig{MaxPods: 9}})
	add("changed while waiting")
	w.reach(someFacts(), "1.35.4")
	w.refresh()
	add("rendered")
	w.put(Desired{NodeConfig: NodeConfig{MaxPods: 10}})
	add("changed")
	w.runs = true
	held := *w.node
	held.Assigned--
	w.node = &held
	add("held back")
	w.put(Desired{NodeConfig: NodeConfig{MaxPods: 11}})
	add("changed while held back")
	if w.node.Assigned != held.Assigned || w.node.Revision == held.Revision {
		t.Errorf("a PUT moved what agents are offered: %+v", w.node)
	}
	w.remove()
	w.runs = false
	w.put(Desired{})
	add("made again") // M4: another uid
}

// A failed node can be read and written back, and is tried again.
func TestAFailedNodeIsWrittenBack(t *testing.T) {
	w := newWorld(t)
	w.unreached()
	w.put(Desired{Versions: Versions{Kubernetes: "1.36.1"}})
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
	must(0, err)
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

// A request for a URL makes a node wait, and changes nothing else.
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

// The creator of a node and the author of its last change.
func TestSystemData(t *testing.T) {
	w := newWorld(t)
	w.put(Desired{})
	made := w.now.UTC()
	w.now = w.now.Add(time.Hour)
	p := Put{
		ID: nodeID, Desired: Desired{NodeConfig: NodeConfig{MaxPods: 9}}, At: w.now,
		By: "robot", ByType: "Application",
	}
	got, _ := Decide(p, w.node, w.last(), nil, w.parent, Secret{})
	want := api.SystemData{
		CreatedBy: "ops", CreatedByType: "User", CreatedAt: made, LastModifiedBy: "robot",
		LastModifiedByType: "Application", LastModifiedAt: made.Add(time.Hour),
	}
	expect(t, "who has made it", got.Node.SystemData, want)
	if r := got.Revision; r.By != "robot" || r.Why != "put" || !r.Created.Equal(p.At) {
		t.Errorf("%+v", r)
	}
}

// A node that takes too much of a transaction, or of its subscription's memory, is refused.
func TestALargeNodeIsRefused(t *testing.T) {
	labels := func(n, size int) NodeConfig {
		all := map[string]string{}
		for i := range n {
			name := fmt.Sprintf("%s.example.com/label-%d", strings.Repeat("y", size/2), i)
			all[name] = strings.Repeat("x", size/2)
		}
		return NodeConfig{Labels: all}
	}
	taints := NodeConfig{}
	for i := range 17 {
		taints.Taints = append(taints.Taints, fmt.Sprintf("taint-%d:NoSchedule", i))
	}
	for want, c := range map[string]NodeConfig{
		"":                             labels(maxLabels, 60),
		"properties.nodeConfig":        labels(maxLabels, 120),
		"properties.nodeConfig.labels": labels(maxLabels+1, 20),
		"properties.nodeConfig.taints": taints,
		"properties.nodeConfig.labels properties.nodeConfig properties": labels(2000, 40),
	} {
		p := Put{ID: nodeID, At: time.Now(), Desired: Desired{NodeConfig: c}}
		_, problems := Decide(p, nil, nil, nil, newWorld(t).parent, Secret{})
		expect(t, fmt.Sprintf("%q", want), targets(problems), want)
	}
}

func TestTagsAreBounded(t *testing.T) {
	tags := func(n, name, value int, letter string) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("%0*d", name, i)] = strings.Repeat(letter, value)
		}
		return all
	}
	for want, some := range map[int][]map[string]string{
		0: {nil, tags(50, 512, 256, "é")},
		1: {tags(51, 2, 0, ""), tags(1, 513, 0, ""), tags(1, 1, 257, "é"), {"": "x"},
			tags(50, 1, 256, "<")}, // six bytes each in JSON
	} {
		for _, one := range some {
			if got := CheckTags(one); len(got) != want {
				t.Errorf("%d tags: %v", len(one), got)
			}
		}
	}
}

// A client secret reaches a node that keeps its configuration until the budget admits a new one.
func TestANewSecretWaitsForNoSlot(t *testing.T) {
	w := newWorld(t)
	principal := func(secret string, maxPods int) Desired {
		d := asPrincipal(clientA, secret)
		d.NodeConfig.MaxPods = maxPods
		return d
	}
	first := w.put(principal("one", 10)).Revision
	w.runs = true
	w.put(principal("", 20)) // held
	expect(t, "what is offered", w.node.Assigned, first.Version)
	w.node.Attempt = &Attempt{Revision: first.Version}
	rotated := principal("two", 20) // with all that its owner says of it
	rotated.AzureAuth.ServicePrincipal.SecretExpires = "2028-01-31"
	rotated.AzureAuth.ServicePrincipal.PrincipalID = "99999999-0000-0000-0000-000000000002"
	d := w.put(rotated)
	offered := must(w.history.Find(w.node.Assigned))
	if offered.Version <= first.Version || offered.Version >= d.Revision.Version ||
		offered.SecretVersion != w.version || string(offered.Own) != string(first.Own) ||
		w.node.Attempt.Revision != offered.Version || d.Revision.Version != w.node.Revision {
		t.Errorf("%+v is offered, %+v", offered, w.node)
	}
	change := ChangeOf(must(readObject(first.Own)), must(readObject(offered.Own)))
	expect(t, "the change that it disturbs by", change.ID, "")
	// That of another client goes with the configuration that names the client.
	other := principal("three", 20)
	other.AzureAuth.ServicePrincipal.ClientID = "99999999-0000-0000-0000-000000000001"
	w.put(other)
	expect(t, "what is offered after that of another", w.node.Assigned, offered.Version)
}

// sameConfig reports whether two revisions are the same configuration.
func sameConfig(r, o Revision) bool {
	return r.Defaults == o.Defaults && r.Facts == o.Facts && r.SecretVersion == o.SecretVersion &&
		bytes.Equal(r.Own, o.Own)
}

// Refresh replaces the facts, and nothing else.
func TestRefreshReplacesTheFacts(t *testing.T) {
	g := generator(t)
	for range 300 {
		w := newWorld(t)
		w.defaults(object{"artifacts": object{"mirror": "https://mirror.example"}})
		w.put(randomDesired(g))
		before, was := *w.node, *w.last()
		if r := w.refresh(); r != nil {
			t.Fatalf("the same facts made a revision: %+v", r)
		}
		f := someFacts()
		f.ServerURL = "https://moved.example"
		w.reach(f, "1.38.0")
		w.defaults(object{"artifacts": object{"mirror": "https://other.example"}})
		w.now = w.now.Add(time.Minute)
		r := w.refresh()
		if r == nil || r.Why != "facts" || r.Facts == was.Facts || r.Version <= was.Version {
			t.Fatalf("%+v", r)
		}
		same := was
		same.Facts = r.Facts
		if !sameConfig(same, *r) {
			t.Fatalf("more than the facts changed:\n%s", cmp.Diff(was, *r))
		}
		after := *w.node
		after.Revision, after.Assigned, after.Facts = before.Revision, before.Assigned, before.Facts
		after.Before = before.Before
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("more than the version of the node changed:\n%s", diff)
		}
		if !strings.Contains(w.config(r), "https://moved.example") ||
			!strings.Contains(w.config(r), "https://mirror.example") {
			t.Fatal(w.config(r))
		}
	}
}

// A node that waits for its cluster is resolved when the cluster is reached.
func TestWaitingNodeIsResolved(t *testing.T) {
	g := generator(t)
	for range 200 {
		w := newWorld(t)
		w.unreached()
		d := randomDesired(g)
		if got := w.put(d); got.Revision != nil || w.node.State != api.Creating {
			t.Fatalf("%+v", got)
		}
		if r := w.refresh(); r != nil || w.node.State != api.Creating {
			t.Fatalf("%+v", r)
		}
		w.reach(someFacts(), "1.35.4")
		r := w.refresh()
		if r == nil || w.node.State != "" || w.node.Identity != IdentityOf(nodeID, d, tenant) {
			t.Fatalf("%+v, %+v", r, w.node)
		}
		if v := w.node.Chosen.Versions.Kubernetes; d.Versions.Kubernetes == "" && v != "1.35.4" {
			t.Fatalf("Kubernetes %s", v)
		}
		direct := newWorld(t)
		direct.put(d)
		if !sameConfig(*direct.last(), Revision{
			Defaults: r.Defaults, Facts: r.Facts, Own: r.Own,
			SecretVersion: direct.last().SecretVersion,
		}) {
			t.Fatalf("it is not as if the cluster had been there:\n%s", cmp.Diff(direct.last(), r))
		}
	}
}

// A rendered node that waits for its credential continues to wait.
func TestRefreshKeepsTheState(t *testing.T) {
	w := newWorld(t)
	w.unreached()
	w.put(Desired{})
	w.node.Credential = "c/1"
	w.reach(someFacts(), "1.35.4")
	if w.refresh(); w.node.State != api.Creating {
		t.Errorf("%q", w.node.State)
	}
	w = newWorld(t)
	w.unreached()
	w.put(Desired{Versions: Versions{Kubernetes: "1.36.0"}})
	w.node.Credential = "c/1"
	w.reach(someFacts(), "1.35.4")
	w.refresh()
	w.reach(someFacts(), "1.36.0")
	if w.refresh(); w.node.State != api.Updating || w.node.Reason != "" {
		t.Errorf("%q %q", w.node.State, w.node.Reason)
	}
}

// A node has the cluster's facts if its revision has them, even if they are stored with another id
// than that of their content: it is not rendered repeatedly.
func TestRefreshEnds(t *testing.T) {
	for _, id := range []string{"", "OTHER"} {
		w := newWorld(t)
		w.put(Desired{})
		if id != "" {
			w.parent.Cluster.Facts = id
		}
		want := w.parent.factsID()
		w.node.Facts = "former"
		w.refresh()
		if w.refresh(); w.node.Facts != want {
			t.Errorf("it is at %s, the cluster at %s", w.node.Facts, want)
		}
	}
}
