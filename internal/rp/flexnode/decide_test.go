package flexnode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// An equal PUT changes nothing, whatever has changed in the cluster (M6), the facts and the
// defaults (M7). The secret may be given again or omitted.
func TestAnEqualPutChangesNothing(t *testing.T) {
	repeat(t, 500, func(g *rand.Rand, w *world) {
		d := randomDesired(g)
		has(t, "a new node", effect(w.put(d)), "changes writes renders")
		w.node.Chosen.Versions = olderTable // as an older provider has chosen
		before := *w.node
		w.now = w.now.Add(hour)
		w.moves(pick(g, someFacts().ServerURL, "https://moved.example"),
			pick(g, "1.35.4", "1.36.0", "1.41.2"))
		w.defaults(pick(g, nil, object{"artifacts": object{"mirror": "https://other.example"}},
			object{"nonsense": 1}))
		if pick(g, true, false) {
			d = withoutSecret(d)
		}
		text := must(json.Marshal(d)) // by a client that reads and writes JSON
		d = Desired{}
		must(0, json.Unmarshal(text, &d))
		expect(t, "what an equal PUT does", effect(w.put(d)), "")
		expect(t, "the node after it", *w.node, before)
	})
}

// A pause makes no configuration and revokes nothing. A rollback does not resume the node.
func TestPausing(t *testing.T) {
	repeat(t, 200, func(g *rand.Rand, w *world) {
		d := randomDesired(g)
		w.put(d)
		want, first := *w.node, w.config(w.last())
		w.now = w.now.Add(hour)
		d.UpgradePolicy.Paused = true
		expect(t, "what a pause does", effect(w.put(d)), "writes")
		want.Desired.UpgradePolicy.Paused = true
		want.SystemData.LastModifiedAt = w.now.UTC()
		expect(t, "the paused node", *w.node, want)
		d.NodeConfig.MaxPods++
		w.put(d)
		text := w.config(w.last())
		expect(t, "agents receive it: "+text, strings.Contains(text, "paused"), false)
		w.now = w.now.Add(hour)
		must(w.rollBack(want.Revision))
		expect(t, "it is paused after a rollback", w.node.Desired.UpgradePolicy.Paused, true)
		expect(t, "what it was rolled back to", w.config(w.last()), first)
	})
}

// A PUT in another casing is equal, except for the casing that is shown.
func TestAnotherCasingIsShown(t *testing.T) {
	w := newWorld(t)
	want := w.put(Desired{}).Node
	want.ID = strings.ToUpper(nodeID)
	got, _ := w.asks(Put{ID: want.ID, At: w.now.Add(hour)})
	expect(t, "what it does", effect(got), "writes")
	expect(t, "the node", got.Node, want)
}

// Clearing a field resets it.
func TestClearingAFieldResetsIt(t *testing.T) {
	w := newWorld(t)
	w.put(Desired{})
	empty := w.config(w.last())
	repeat(t, 200, func(g *rand.Rand, _ *world) {
		w.now = w.now.Add(time.Second)
		w.put(randomDesired(g))
		w.put(Desired{Versions: w.node.Desired.Versions})
		w.put(Desired{})
		expect(t, "what is left", w.config(w.last()), empty)
	})
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
			if w.node == nil {
				continue
			}
			w.moves("https://"+string(rune('a'+i%26))+".example", "1.35.4")
			w.refresh()
		case 2:
			w.unreached()
			w.put(randomDesired(g))
			w.reach(someFacts(), "1.35.4")
			w.refresh()
		default:
			w.put(randomDesired(g))
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
		e := w.node.ETag()
		shows(t, what+": the ETag "+e+" is known, and has the uid", "false true", known[e],
			strings.HasPrefix(e, `"uid`))
		known[e] = true
	}
	w.put(Desired{})
	add("made")
	w.put(pods(9))
	add("changed while waiting")
	w.reach(someFacts(), "1.35.4")
	w.refresh()
	add("rendered")
	w.put(pods(10))
	add("changed")
	w.runs = true
	w.node.Assigned--
	held := *w.node
	add("held back")
	w.put(pods(11))
	add("changed while held back")
	shows(t, "a PUT has moved what agents are offered, and what is desired", "false true",
		w.node.Assigned != held.Assigned, w.node.Revision != held.Revision)
	w.remove()
	w.runs = false
	w.put(Desired{})
	add("made again") // M4: another uid
}

// A failed node can be read and written back, and is tried again.
func TestAFailedNodeIsWrittenBack(t *testing.T) {
	w := newWorld(t)
	w.unreached()
	w.put(kubernetes("1.36.1"))
	shows(t, "while it waits", "Creating 0", w.node.State, w.node.Revision)
	w.reach(someFacts(), "1.35.4")
	r := w.refresh()
	shows(t, "with an older cluster", "true Failed", r == nil, w.node.State)
	has(t, "the reason", w.node.Reason, "newer than the cluster")
	shown := Shown(*w.node, nil, nil, nil)
	c := shown.Properties.Status.Conditions
	shows(t, "its conditions", "1 Resolved", len(c), c[0].Type)
	d, _, err := ReadPut(must(json.Marshal(shown)), nodeID)
	must(0, err)
	_, problems := w.decide(d)
	expect(t, "problems while it is too new", len(problems), 1)
	w.reach(someFacts(), "1.36.1")
	w.put(d)
	s := Shown(*w.node, w.last(), nil, nil).Properties
	shows(t, "after the cluster was upgraded", `"" "" true Succeeded true`,
		fmt.Sprintf("%q %q", w.node.State, w.node.Reason), w.node.Revision != 0, s.ProvisioningState,
		s.Status == nil)
}

// A request for a URL makes a node wait, and changes nothing else.
func TestAskingForAURL(t *testing.T) {
	w := newWorld(t)
	p := Put{ID: nodeID, URL: true, At: w.now, NewUID: "u"}
	made, _ := w.asks(p)
	shows(t, "made", "Creating, changes writes renders", made.Node.State+",", effect(made))
	w.keep(made.Node, made.Revision)
	w.node.State = ""
	again, _ := w.asks(p)
	shows(t, "asked again", "Updating, writes", again.Node.State+",", effect(again))
}

// The creator of a node and the author of its last change.
func TestSystemData(t *testing.T) {
	w := newWorld(t)
	w.put(Desired{})
	made := w.now.UTC()
	got, _ := w.asks(Put{ID: nodeID, Desired: pods(9), At: w.now.Add(hour), By: "robot",
		ByType: "Application"})
	expect(t, "who has made it", got.Node.SystemData, api.SystemData{
		CreatedBy: "ops", CreatedByType: "User", CreatedAt: made, LastModifiedBy: "robot",
		LastModifiedByType: "Application", LastModifiedAt: made.Add(hour),
	})
	r := got.Revision
	shows(t, "the revision", fmt.Sprint("robot put ", made.Add(hour)), r.By, r.Why, r.Created)
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
		_, problems := newWorld(t).asks(Put{ID: nodeID, Desired: Desired{NodeConfig: c}})
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
			expect(t, fmt.Sprintf("the problems of %d tags", len(one)), len(CheckTags(one)), want)
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
	shows(t, "what is offered is later, and earlier than what is desired", "true true",
		offered.Version > first.Version, offered.Version < d.Revision.Version)
	shows(t, "its secret and the rest", fmt.Sprint(w.version, " ", string(first.Own)),
		offered.SecretVersion, string(offered.Own))
	shows(t, "the attempt, and what is desired", fmt.Sprint(offered.Version, d.Revision.Version),
		w.node.Attempt.Revision, w.node.Revision)
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
	repeat(t, 300, func(g *rand.Rand, w *world) {
		w.defaults(object{"artifacts": object{"mirror": "https://mirror.example"}})
		w.put(randomDesired(g))
		want, was := *w.node, *w.last()
		expect(t, "the same facts made a revision", w.refresh() != nil, false)
		w.moves("https://moved.example", "1.38.0")
		w.defaults(object{"artifacts": object{"mirror": "https://other.example"}})
		w.now = w.now.Add(minute)
		r := w.refresh()
		shows(t, "the revision is because of facts, has others, and is later", "facts true true",
			r.Why, r.Facts != was.Facts, r.Version > was.Version)
		was.Facts = r.Facts
		expect(t, "only the facts have changed", sameConfig(was, *r), true)
		n := w.node
		want.Revision, want.Assigned, want.Facts, want.Before = n.Revision, n.Assigned, n.Facts, n.Before
		expect(t, "the rest of the node", *n, want)
		has(t, "the configuration", w.config(r), "https://moved.example", "https://mirror.example")
	})
}

// A node that waits for its cluster is resolved when the cluster is reached.
func TestWaitingNodeIsResolved(t *testing.T) {
	repeat(t, 200, func(g *rand.Rand, w *world) {
		w.unreached()
		d := randomDesired(g)
		made, r := w.put(d).Revision, w.refresh()
		shows(t, "made, and refreshed", "true true Creating", made == nil, r == nil, w.node.State)
		w.reach(someFacts(), "1.35.4")
		r = w.refresh()
		expect(t, "then its state and identity", []string{w.node.State, w.node.Identity},
			[]string{"", IdentityOf(nodeID, d, tenant)})
		if d.Versions.Kubernetes == "" {
			expect(t, "its Kubernetes", w.node.Chosen.Versions.Kubernetes, "1.35.4")
		}
		direct := newWorld(t)
		direct.put(d)
		r.SecretVersion = direct.last().SecretVersion
		expect(t, "it is as if the cluster had been there", sameConfig(*direct.last(), *r), true)
	})
}

// A rendered node that waits for its credential continues to wait.
func TestRefreshKeepsTheState(t *testing.T) {
	w := newWorld(t)
	w.unreached()
	w.put(Desired{})
	w.node.Credential = "c/1"
	w.reach(someFacts(), "1.35.4")
	w.refresh()
	expect(t, "its state", w.node.State, api.Creating)
	w = newWorld(t)
	w.unreached()
	w.put(kubernetes("1.36.0"))
	w.node.Credential = "c/1"
	w.reach(someFacts(), "1.35.4")
	w.refresh()
	w.reach(someFacts(), "1.36.0")
	w.refresh()
	shows(t, "its state without a reason", "Updating ", w.node.State, w.node.Reason)
}

// A node has the cluster's facts if its revision has them, even if they are stored with another id
// than that of their content: it is not rendered repeatedly.
func TestRefreshEnds(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{w.parent.Cluster.Facts, "OTHER"} {
		w = newWorld(t)
		w.put(Desired{})
		w.parent.Cluster.Facts, w.node.Facts = id, "former"
		w.refresh()
		w.refresh()
		expect(t, "the node is at", w.node.Facts, id)
	}
}
