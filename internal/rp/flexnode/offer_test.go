package flexnode

import "testing"

// A PUT and a rollback that disturb nothing are assigned at once to a node that runs its assigned
// revision; disturbing ones, and those of other nodes, by Admit, which decides alike.
func TestOfferedAtOnce(t *testing.T) {
	labels := func(d *Desired) { d.NodeConfig.Labels = map[string]string{"site": "b"} }
	pods := func(d *Desired) { d.NodeConfig.MaxPods++ }
	secret := func(d *Desired) { d.AzureAuth.ServicePrincipal.ClientSecret = "another" }
	settled := func(*Node) {}
	for name, tt := range map[string]struct {
		change func(*Desired)
		is     func(*Node)
		want   bool
	}{
		"a label":            {labels, settled, true},
		"pods":               {pods, settled, false},
		"a client secret":    {secret, settled, true},
		"a paused node":      {labels, func(n *Node) { n.Desired.UpgradePolicy.Paused = true }, true},
		"it has failed":      {labels, func(n *Node) { n.Failed = n.Revision }, false},
		"it holds a slot":    {labels, func(n *Node) { n.Attempt = &Attempt{} }, false},
		"not heard of since": {labels, func(n *Node) { n.Attempt = &Attempt{Outcome: Unknown} }, false},
		"its change is good": {labels, func(n *Node) { n.Attempt = &Attempt{Outcome: Good} }, true},
		"it was restored":    {labels, func(n *Node) { n.Unreleased = 1 }, false},
		"it waits":           {labels, func(n *Node) { n.Assigned-- }, false},
	} {
		w := newWorld(t)
		d := typical()
		w.put(d)
		first := w.node.Revision
		w.runs, w.reported = true, first
		tt.is(w.node)
		before := w.whole(w.last(), Grants{})
		tt.change(&d)
		got := w.put(d)
		expect(t, name+": offered at once", got.Node.Assigned == got.Node.Revision, tt.want)
		expect(t, name+": the secret is offered with the former revision", got.Offered != nil,
			!tt.want && name == "a client secret")
		nodes := []Candidate{{Key: "c/n", Desired: 2, Assigned: 1, Applied: 1, Follows: true,
			Change: ChangeOf(before, w.whole(w.last(), Grants{}))}}
		moves, _ := Admit(Policy{Paused: true}, nodes, nil, w.now)
		if tt.want || name == "pods" {
			shows(t, name+": Admit moves", map[bool]string{true: "1 n", false: "0 "}[tt.want],
				len(moves), named(nodes, moves, admitted))
		}
		if w.reported = got.Node.Revision; tt.want && name != "a client secret" {
			back := must(w.rollBack(first))
			expect(t, name+": what is offered after the rollback", back.Node.Assigned, back.Node.Revision)
		}
	}
}

// A node may run a revision that it has not reported yet: a change is assigned at once if it
// disturbs neither the reported nor the assigned revision.
func TestOfferedAtOnceAgain(t *testing.T) {
	first := typical()
	label := func(d Desired, to string) Desired {
		d.NodeConfig.Labels = map[string]string{"site": to}
		return d
	}
	pods := first
	pods.NodeConfig.MaxPods++
	for name, tt := range map[string]struct {
		offered, wanted Desired
		want            bool
	}{
		"a label after a label":       {label(first, "b"), label(first, "c"), true},
		"a label and back":            {label(first, "b"), first, true},
		"pods after a label":          {label(first, "b"), label(pods, "b"), false},
		"back from pods":              {pods, first, false},
		"a label after pods":          {pods, label(pods, "b"), false},
		"back from pods with a label": {pods, label(first, "b"), false},
	} {
		w := newWorld(t)
		w.put(first)
		w.runs, w.reported = true, w.node.Revision
		w.put(tt.offered)
		// It was admitted, and was good, but this replica has not heard of its report.
		w.node.Assigned, w.node.Attempt = w.node.Revision, &Attempt{Outcome: Good}
		got := w.put(tt.wanted)
		expect(t, name+": offered at once", got.Node.Assigned == got.Node.Revision, tt.want)
	}
}
