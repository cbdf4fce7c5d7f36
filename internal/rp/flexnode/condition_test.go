package flexnode

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// evidence returns that of a node that has joined, follows its resource, and is up to date.
func evidence() Evidence {
	now := time.Unix(1_800_000_000, 0).UTC()
	return Evidence{
		Node: Node{Revision: 9, Assigned: 9, Desired: Desired{ContinuousMonitoring: true}},
		Status: Status{
			Ready:  &api.Condition{Type: Ready, Status: "True", Reason: "KubeletReady"},
			Report: api.Report{AppliedConfigVersion: "9"},
		},
		Seen: now.Add(-time.Minute), Reachable: true, Now: now,
	}
}

func TestDerivedConditions(t *testing.T) {
	failed := func(version string) *api.Applied {
		return &api.Applied{Failed: &api.FailedConfig{Version: version, Reason: "NodeNotReady"}}
	}
	later, observed := evidence().Now.Add(hour), &api.Applied{Observed: "10"}
	blocked := api.Condition{Type: NoChangeWaiting, Status: "False", Reason: "DrainBlocked",
		Message: "a budget"}
	waiting := func(c JoinCredential) func(*Evidence) {
		return func(e *Evidence) {
			e.Status, e.Seen = Status{}, time.Time{}
			e.Node.Credential, e.Credential = "k", &c
		}
	}
	deleted := func(c *JoinCredential) func(*Evidence) {
		return func(e *Evidence) { e.Status.Ready, e.Credential = NodeMissing(e.Now), c }
	}
	// wants has the node's owner want revision 10, and its agent report something of it.
	wants := func(assigned int64, reported *api.Applied, own ...api.Condition) func(*Evidence) {
		return func(e *Evidence) {
			e.Node.Revision, e.Node.Assigned = 10, assigned
			e.Status.Report.Config, e.Status.Report.Conditions = reported, own
		}
	}
	type row = map[string]string
	good := row{
		Joined: "True NodeRegistered", UpToDate: "True Applied", Reporting: "True Heard",
		CredentialValid: "True IdentityAccepted",
	}
	unseen := func(joined, credential string) row {
		return row{Joined: joined, UpToDate: "Unknown NotReported", Reporting: "False NeverHeard",
			CredentialValid: credential}
	}
	advice := row{"NotMonitored": "regenerateToken", "NeverHeard": "aks-flex-node doctor",
		"Failed": "Unless the reason is RevisionNotTrusted"}
	for name, tt := range map[string]struct {
		change func(*Evidence)
		want   row // where it differs from good
	}{
		"good": {func(*Evidence) {}, nil},
		"Node deleted": {deleted(nil), row{Joined: "False NodeNotFound",
			UpToDate: "True AppliedNotReady", CredentialValid: "False NothingToJoinWith"}},
		"Node deleted and another machine may join": {
			deleted(&JoinCredential{Made: true, Expires: later}),
			row{Joined: "False WaitingForMachine", UpToDate: "True AppliedNotReady",
				CredentialValid: "True WaitingForMachine"}},
		"Node deleted soon after the join": {
			deleted(&JoinCredential{Made: true, Used: true, Issued: true, Expires: later}),
			row{Joined: "False NodeNotFound", UpToDate: "True AppliedNotReady",
				CredentialValid: "Unknown Joining"}},
		"the name is another's": {func(e *Evidence) { e.Status.Ready = ForeignNode(e.Now) },
			row{Joined: "False NodeForeign", UpToDate: "True AppliedNotReady",
				CredentialValid: "False NothingToJoinWith"}},
		"silent": {func(e *Evidence) { e.Seen = e.Now.Add(-silentAfter - time.Second) },
			row{Reporting: "False Silent", CredentialValid: "True KubeletAccepted"}},
		"silent and not Ready": {
			func(e *Evidence) { e.Seen, e.Status.Ready.Status = time.Unix(1, 0), "False" },
			row{Reporting: "False Silent", CredentialValid: "Unknown NotSeen",
				UpToDate: "True AppliedNotReady"}},
		"applied and not Ready": {func(e *Evidence) { e.Status.Ready.Status = "False" },
			row{UpToDate: "True AppliedNotReady"}},
		"silent and the cluster does not answer": {
			func(e *Evidence) { e.Seen, e.Reachable = time.Unix(1, 0), false },
			row{Reporting: "False Silent", CredentialValid: "Unknown NotSeen"}},
		"as long as is allowed": {func(e *Evidence) { e.Seen = e.Now.Add(-silentAfter) }, nil},
		"never heard": {func(e *Evidence) { e.Seen = time.Time{} },
			row{Reporting: "False NeverHeard", CredentialValid: "True KubeletAccepted"}},
		"not monitored": {
			func(e *Evidence) {
				e.Seen, e.Node.Desired.ContinuousMonitoring = time.Time{}, false
				e.Status.Report = api.Report{}
			},
			row{UpToDate: "Unknown NotMonitored", Reporting: "Unknown NotMonitored",
				CredentialValid: "True KubeletAccepted"}},
		"never rendered": {func(e *Evidence) { e.Node.Revision, e.Node.Assigned = 0, 0 },
			row{UpToDate: "Unknown NotRendered"}},
		"nothing applied yet": {func(e *Evidence) { e.Status.Report = api.Report{} },
			row{UpToDate: "Unknown NotReported"}},
		"outdated": {wants(10, nil), row{UpToDate: "False Outdated"}},
		"applying": {wants(10, observed), row{UpToDate: "False Applying"}},
		"waiting": {wants(10, observed, blocked),
			row{UpToDate: "False DrainBlocked", NoChangeWaiting: "False DrainBlocked"}},
		"nothing is left to wait": {
			func(e *Evidence) { e.Status.Report.Conditions = []api.Condition{blocked} },
			row{NoChangeWaiting: "False DrainBlocked"}},
		"failed":                 {wants(10, failed("10")), row{UpToDate: "False Failed"}},
		"failed and not offered": {wants(9, failed("10")), row{UpToDate: "False Failed"}},
		"one before has failed":  {func(e *Evidence) { e.Status.Report.Config = failed("8") }, nil},
		"held back":              {wants(9, nil), row{UpToDate: "False AwaitingRollout"}},
		"held back and paused": {
			func(e *Evidence) { e.Node.Revision, e.Node.Desired.UpgradePolicy.Paused = 10, true },
			row{UpToDate: "False AwaitingRollout"}},
		"the agent says that its credential is bad": {
			func(e *Evidence) {
				e.Status.Report.Conditions = []api.Condition{
					{Type: CredentialValid, Status: "False", Reason: "SecretExpired"}}
			},
			row{CredentialValid: "False SecretExpired"}},
		"another identity": {func(e *Evidence) { e.Node.Former = "oid:t/x" },
			row{CredentialValid: "Unknown IdentityNotSeen"}},
		"waits for a machine": {waiting(JoinCredential{Made: true, Expires: later}),
			unseen("False WaitingForMachine", "True WaitingForMachine")},
		"being made": {waiting(JoinCredential{Expires: later}),
			unseen("False CredentialPending", "Unknown Joining")},
		"denied": {waiting(JoinCredential{Made: true, Denied: "for another node", Expires: later}),
			unseen("False RequestDenied", "False NotUsable")},
		"used": {waiting(JoinCredential{Made: true, Used: true, Expires: later}),
			unseen("False MachineJoining", "Unknown Joining")},
		"in a list": {func(e *Evidence) { waiting(JoinCredential{})(e); e.Credential = nil },
			unseen("False NotJoined", "Unknown NotJoined")},
	} {
		t.Run(name, func(t *testing.T) {
			e := evidence()
			tt.change(&e)
			got, want := row{}, maps.Clone(good)
			maps.Copy(want, tt.want)
			for _, c := range StatusOf(e).Conditions {
				if c.Type == Ready {
					continue
				}
				got[c.Type] = c.Status + " " + c.Reason
				has(t, "the message of "+c.Type, c.Message, advice[c.Reason])
				if good[c.Type] != "" && c.Status == "False" && c.Reason != "SecretExpired" {
					expect(t, c.Type+" is False, and its message says nothing", c.Message == "", false)
				}
			}
			expect(t, "the conditions", got, want)
		})
	}
}

func TestJoinState(t *testing.T) {
	expires := time.Unix(1_800_086_400, 0).UTC()
	ended := func(c JoinCredential) *Evidence {
		c.Expires = expires
		return &Evidence{Node: Node{Ended: c.End()}}
	}
	with := func(c JoinCredential, registered bool) *Evidence {
		c.Expires = expires
		e := Evidence{Node: Node{Credential: "k"}, Credential: &c}
		if registered {
			e.Status.Ready = &api.Condition{Type: Ready, Status: "False"}
		}
		return &e
	}
	for name, tt := range map[string]struct {
		e           *Evidence
		state, says string
	}{
		"nothing was issued": {&Evidence{}, "", ""},
		"not read":           {&Evidence{Node: Node{Credential: "k"}}, "", ""},
		"pending":            {with(JoinCredential{}, false), api.JoinPending, "being created"},
		"pending, and why": {with(JoinCredential{Problem: "no access"}, false),
			api.JoinPending, "no access"},
		"ready":          {with(JoinCredential{Made: true}, false), api.JoinReady, "waits"},
		"ready again":    {with(JoinCredential{Made: true}, true), api.JoinReady, "waits"},
		"denied":         {with(JoinCredential{Made: true, Denied: "no"}, false), api.JoinDenied, "no"},
		"consumed":       {with(JoinCredential{Made: true, Used: true}, false), api.JoinConsumed, ""},
		"consumed again": {with(JoinCredential{Made: true, Used: true}, true), api.JoinConsumed, ""},
		"consumed, denied": {with(JoinCredential{Used: true, Denied: "no"}, false),
			api.JoinConsumed, "no"},
		"joined": {with(JoinCredential{Made: true, Used: true, Issued: true}, true),
			api.JoinJoined, ""},
		"certificate, and no Node": {with(JoinCredential{Used: true, Issued: true}, false),
			api.JoinConsumed, ""},
		"expired just now": {with(JoinCredential{Made: true, Ended: true}, false), api.JoinExpired,
			"regenerateToken"},
		"expired":             {ended(JoinCredential{Made: true}), api.JoinExpired, "regenerateToken"},
		"ended denied":        {ended(JoinCredential{Made: true, Denied: "no"}), api.JoinDenied, "no"},
		"ended while joining": {ended(JoinCredential{Used: true}), api.JoinConsumed, "in time"},
		"ended well":          {ended(JoinCredential{Used: true, Issued: true}), "", ""},
	} {
		got := cmp.Or(tt.e.joinOf(), &api.Join{})
		expect(t, name, got.State, tt.state)
		has(t, name, got.Reason, tt.says)
		if tt.state != "" && tt.state != api.JoinJoined {
			expect(t, name+": it expires", got.Expires, &expires)
		}
	}
}

// An agent of an older release than the provider is shown; versions that are no release are not.
func TestAgentCurrent(t *testing.T) {
	for agent, older := range map[string]bool{
		"v1.2.2": true, "1.1.9": true, "v1.2.3-4-g0123abc": false, "v1.2.3": false, "v1.3.0": false,
		"dev": false, "": false, "v1.2.2-4-g0123abc-dirty": true,
	} {
		e := Evidence{Provider: "v1.2.3", Status: Status{Report: api.Report{AgentVersion: agent}}}
		found := find(StatusOf(e).Conditions, AgentCurrent)
		expect(t, fmt.Sprintf("%q is older", agent), found != nil, older)
		if found != nil {
			expect(t, "the condition", found.Status, "False")
			has(t, "the condition", found.Message, agent)
		}
		e.Provider = "dev"
		expect(t, fmt.Sprintf("%q is older than what is no release", agent), e.agentIsOlder(), false)
	}
}

func TestCheckCluster(t *testing.T) {
	pool := func(network string, mask int) ClusterProperties {
		return ClusterProperties{PodCIDR: network, NodeCIDRMask: mask}
	}
	old := &Cluster{Location: "x", Properties: pool("10.200.0.0/22", 24)}
	tests := []struct {
		location   string
		properties ClusterProperties
		old        *Cluster
		want       string
	}{
		{"westeurope", ClusterProperties{}, nil, ""},
		{"West Europe", ClusterProperties{
			Kubeconfig: "factory", ServerURL: "https://[::1]:6443/", DNSServiceIP: "10.0.0.10",
		}, nil, ""},
		{"", ClusterProperties{}, nil, "location"},
		{"x", ClusterProperties{Kubeconfig: "../x"}, nil, "properties.kubeconfig"},
		{"x", ClusterProperties{ServerURL: "http://x"}, nil, "properties.serverUrl"},
		{"x", ClusterProperties{DNSServiceIP: "x"}, nil, "properties.dnsServiceIP"},
		{"x", pool("10.200.0.0/16", 24), nil, ""},
		{"x", pool("fd00:1::/48", 64), nil, ""},
		{"x", pool("10.200.0.1/16", 24), nil, "properties.podCidr"},
		{"x", pool("", 24), nil, "properties.podCidr"},
		{"x", pool("10.200.0.0/16", 15), nil, "properties.nodeCidrMask"},
		{"x", pool("10.200.0.0/16", 31), nil, "properties.nodeCidrMask"},
		{"x", pool("fd00::/8", 64), nil, "properties.nodeCidrMask"},
		{"x", pool("10.200.0.0/16", 30), nil, "properties.nodeCidrMask"},
		{"x", ClusterProperties{DNSServiceIP: "::1"}, nil, "properties.dnsServiceIP"},
		{"x", pool("10.200.0.0/22", 24), old, ""},
		{"x", pool("10.201.0.0/22", 24), old, "properties.podCidr"},
		{"x", pool("", 0), old, "properties.podCidr"},
		{"X ", pool("10.201.0.0/22", 24), &Cluster{Location: "x"}, ""},
		{"y", pool("", 0), &Cluster{Location: "x"}, "location"},
	}
	for _, tt := range tests {
		c := api.ManagedCluster{Location: tt.location, Properties: tt.properties.API()}
		expect(t, fmt.Sprintf("%+v", c), targets(CheckCluster(c, tt.old)), tt.want)
	}
}

func TestShownCluster(t *testing.T) {
	c := Cluster{ID: cluster, Location: "x", Version: "7"}
	states := []string{ShownCluster(c).Properties.ProvisioningState}
	c.Facts = "f"
	states = append(states, ShownCluster(c).Properties.ProvisioningState)
	c.Deletion = &Deletion{Operation: "o"}
	states = append(states, ShownCluster(c).Properties.ProvisioningState)
	expect(t, "the states", states, []string{api.Creating, api.Succeeded, api.Deleting})
	s := ShownCluster(c)
	shows(t, "what is shown", `Factory "7" `+ClusterType, s.Name, s.ETag, s.Type)
}

// Ready is never a stale True (M8).
func TestStatus(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	is := func(status string) *api.Condition {
		return &api.Condition{Type: Ready, Status: status, LastTransitionTime: now, Reason: "Is"}
	}
	const down, gone = "Unknown " + ClusterUnreachable, "Unknown " + NodeNotFound
	agent := api.Report{Conditions: []api.Condition{*is("True")}}
	tests := map[string]struct {
		status    Status
		reachable bool
		want      string
	}{
		"never joined":                 {Status{}, true, ""},
		"never joined, cluster down":   {Status{}, false, ""},
		"ready":                        {Status{Ready: is("True")}, true, "True Is"},
		"not ready":                    {Status{Ready: is("False")}, true, "False Is"},
		"ready, cluster down":          {Status{Ready: is("True")}, false, down},
		"not ready, cluster down":      {Status{Ready: is("False")}, false, down},
		"Node deleted":                 {Status{Ready: NodeMissing(now)}, true, gone},
		"Node deleted, cluster down":   {Status{Ready: NodeMissing(now)}, false, gone},
		"the agent says it is ready":   {Status{Report: agent, Ready: NodeMissing(now)}, true, gone},
		"only the agent says anything": {Status{Report: agent}, true, "True Is"},
	}
	for name, tt := range tests {
		got := ""
		e := Evidence{Status: tt.status, Reachable: tt.reachable, Now: now}
		for _, c := range StatusOf(e).Conditions {
			if c.Type == Ready {
				got += c.Status + " " + c.Reason
			}
		}
		expect(t, name, got, tt.want)
	}
	ahead := StatusOf(Evidence{Seen: now.Add(time.Minute), Now: now})
	expect(t, "seen in the future", *ahead.LastSeen, now)
}

func TestShown(t *testing.T) {
	n := Node{
		ID: nodeID, UID: "u-v", Revision: 9, Assigned: 8, State: api.Updating,
		Desired: withoutSecret(typical()),
	}
	listed := Shown(n, nil, nil, nil)
	p := listed.Properties
	shows(t, "its properties", "9 u-v Updating true true", p.ConfigVersion, p.ResourceUID,
		p.ProvisioningState, p.Config == nil, p.Status == nil)
	shows(t, "the resource", `Edge-1 "u-8-9" `+api.ResourceType, listed.Name, listed.ETag, listed.Type)
	expect(t, "the version that is shown",
		Shown(n, &Revision{Version: 9}, nil, nil).Properties.ConfigVersion, "9")
	n.Reason = "because"
	given := &api.Status{Conditions: []api.Condition{{Type: "A"}}}
	shown := Shown(n, nil, nil, given)
	shows(t, "the conditions that are shown, and those that were given", "2 1",
		len(shown.Properties.Status.Conditions), len(given.Conditions))
}

// Each subnet of a pool is tried once, from that of the name on, and leads back to its row.
func TestSlots(t *testing.T) {
	for _, pool := range []struct {
		network string
		mask, n int
	}{
		{"10.200.0.0/22", 24, 4}, {"10.200.0.0/24", 24, 1}, {"10.0.0.0/8", 16, 256},
		{"fd00:1::/56", 64, 256}, {"10.200.3.0/25", 29, 16},
	} {
		expect(t, fmt.Sprintf("the subnets of %s/%d", pool.network, pool.mask),
			Slots(pool.network, pool.mask), pool.n)
		keys, subnets := map[string]bool{}, map[string]bool{}
		for i := range pool.n {
			key, subnet, ok := Slot("c", "edge-1", pool.network, pool.mask, i)
			again, _, _ := Slot("c", "edge-1", pool.network, pool.mask, i)
			if !ok || key != again || !strings.HasPrefix(key, "c/") ||
				SlotOf("c", pool.network, subnet) != key {
				t.Fatalf("%s: %s %s", pool.network, key, subnet)
			}
			keys[key], subnets[subnet] = true, true
		}
		_, _, more := Slot("c", "edge-1", pool.network, pool.mask, pool.n)
		shows(t, pool.network+": keys, subnets, and if there are more",
			fmt.Sprint(pool.n, pool.n, false), len(keys), len(subnets), more)
	}
	for _, bad := range [][2]string{
		{"10.200.0.0/22", "10.201.0.0/24"}, {"x", "10.200.0.0/24"}, {"10.200.0.0/22", ""},
		{"10.200.0.0/22", "10.200.0.0/16"},
	} {
		expect(t, fmt.Sprintf("the slot of %v", bad), SlotOf("c", bad[0], bad[1]), "")
	}
	shows(t, "the subnets of no pool", "0 0 0", Slots("x", 24), Slots("10.0.0.0/24", 16),
		Slots("10.0.0.0/24", 33))
	first := map[string]bool{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		_, subnet, _ := Slot("c", name, "10.0.0.0/8", 24, 0)
		first[subnet] = true
	}
	if len(first) < 5 {
		t.Errorf("names do not spread: %v", first)
	}
}
