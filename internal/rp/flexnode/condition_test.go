package flexnode

import (
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// evidence is of a node that has joined, follows its resource, and is as its owner wants it.
func evidence() Evidence {
	now := time.Unix(1_800_000_000, 0).UTC()
	return Evidence{
		Node: Node{Revision: 9, Assigned: 9, Desired: api.Desired{ContinuousMonitoring: true}},
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
	later := evidence().Now.Add(time.Hour)
	waiting := func(c JoinCredential) func(*Evidence) {
		return func(e *Evidence) {
			e.Status, e.Seen = Status{}, time.Time{}
			e.Node.Credential, e.Credential = "k", &c
		}
	}
	good := map[string]string{
		Joined: "True NodeRegistered", UpToDate: "True Applied", Reporting: "True Heard",
		CredentialValid: "True IdentityAccepted",
	}
	for name, tt := range map[string]struct {
		change func(*Evidence)
		want   map[string]string // that differs from good
	}{
		"good": {func(*Evidence) {}, nil},
		"Node deleted": {
			func(e *Evidence) { e.Status.Ready = NodeMissing(e.Now) },
			map[string]string{Joined: "False NodeNotFound", UpToDate: "True AppliedNotReady",
				CredentialValid: "False NothingToJoinWith"},
		},
		"the name is another's": {
			func(e *Evidence) { e.Status.Ready = ForeignNode(e.Now) },
			map[string]string{Joined: "False NodeForeign", UpToDate: "True AppliedNotReady",
				CredentialValid: "False NothingToJoinWith"},
		},
		"silent": {
			func(e *Evidence) { e.Seen = e.Now.Add(-silentAfter - time.Second) },
			map[string]string{Reporting: "False Silent", CredentialValid: "True KubeletAccepted"},
		},
		"silent, and not Ready": {
			func(e *Evidence) { e.Seen, e.Status.Ready.Status = time.Unix(1, 0), "False" },
			map[string]string{Reporting: "False Silent", CredentialValid: "Unknown NotSeen",
				UpToDate: "True AppliedNotReady"},
		},
		"applied, and not Ready": {
			func(e *Evidence) { e.Status.Ready.Status = "False" },
			map[string]string{UpToDate: "True AppliedNotReady"},
		},
		"silent, and the cluster does not answer": {
			func(e *Evidence) { e.Seen, e.Reachable = time.Unix(1, 0), false },
			map[string]string{Reporting: "False Silent", CredentialValid: "Unknown NotSeen"},
		},
		"as long as is allowed": {func(e *Evidence) { e.Seen = e.Now.Add(-silentAfter) }, nil},
		"never heard": {
			func(e *Evidence) { e.Seen = time.Time{} },
			map[string]string{Reporting: "False NeverHeard",
				CredentialValid: "True KubeletAccepted"},
		},
		"not monitored": {
			func(e *Evidence) {
				e.Seen, e.Node.Desired.ContinuousMonitoring = time.Time{}, false
				e.Status.Report = api.Report{}
			},
			map[string]string{UpToDate: "Unknown NotMonitored", Reporting: "Unknown NotMonitored",
				CredentialValid: "True KubeletAccepted"},
		},
		"never rendered": {
			func(e *Evidence) { e.Node.Revision, e.Node.Assigned = 0, 0 },
			map[string]string{UpToDate: "Unknown NotRendered"},
		},
		"nothing applied yet": {
			func(e *Evidence) { e.Status.Report = api.Report{} },
			map[string]string{UpToDate: "Unknown NotReported"},
		},
		"outdated": {
			func(e *Evidence) { e.Node.Revision, e.Node.Assigned = 10, 10 },
			map[string]string{UpToDate: "False Outdated"},
		},
		"applying": {
			func(e *Evidence) {
				e.Node.Revision, e.Node.Assigned = 10, 10
				e.Status.Report.Config = &api.Applied{Observed: "10"}
			},
			map[string]string{UpToDate: "False Applying"},
		},
		"waiting": {
			func(e *Evidence) {
				e.Node.Revision, e.Node.Assigned = 10, 10
				e.Status.Report.Config = &api.Applied{Observed: "10"}
				e.Status.Report.Conditions = []api.Condition{
					{Type: NoChangeWaiting, Status: "False", Reason: "DrainBlocked", Message: "a budget"},
				}
			},
			map[string]string{UpToDate: "False DrainBlocked", NoChangeWaiting: "False DrainBlocked"},
		},
		"nothing is left to wait": {
			func(e *Evidence) {
				e.Status.Report.Conditions = []api.Condition{
					{Type: NoChangeWaiting, Status: "False", Reason: "DrainBlocked", Message: "a budget"},
				}
			},
			map[string]string{NoChangeWaiting: "False DrainBlocked"},
		},
		"failed": {
			func(e *Evidence) {
				e.Node.Revision, e.Node.Assigned = 10, 10
				e.Status.Report.Config = failed("10")
			},
			map[string]string{UpToDate: "False Failed"},
		},
		"failed, and not offered any more": {
			func(e *Evidence) { e.Node.Revision, e.Status.Report.Config = 10, failed("10") },
			map[string]string{UpToDate: "False Failed"},
		},
		"one before has failed": {func(e *Evidence) { e.Status.Report.Config = failed("8") }, nil},
		"held back": {
			func(e *Evidence) { e.Node.Revision = 10 },
			map[string]string{UpToDate: "False AwaitingRollout"},
		},
		"held back, and paused": {
			func(e *Evidence) { e.Node.Revision, e.Node.Desired.UpgradePolicy.Paused = 10, true },
			map[string]string{UpToDate: "False AwaitingRollout"},
		},
		"the agent says that its credential is bad": {
			func(e *Evidence) {
				e.Status.Report.Conditions = []api.Condition{
					{Type: CredentialValid, Status: "False", Reason: "SecretExpired"},
				}
			},
			map[string]string{CredentialValid: "False SecretExpired"},
		},
		"another identity": {
			func(e *Evidence) { e.Node.Former = "oid:t/x" },
			map[string]string{CredentialValid: "Unknown IdentityNotSeen"},
		},
		"waits for a machine": {
			waiting(JoinCredential{Made: true, Expires: later}),
			map[string]string{Joined: "False WaitingForMachine", UpToDate: "Unknown NotReported",
				Reporting: "False NeverHeard", CredentialValid: "True WaitingForMachine"},
		},
		"being made": {
			waiting(JoinCredential{Expires: later}),
			map[string]string{Joined: "False CredentialPending", UpToDate: "Unknown NotReported",
				Reporting: "False NeverHeard", CredentialValid: "Unknown Joining"},
		},
		"denied": {
			waiting(JoinCredential{Made: true, Denied: "for another node", Expires: later}),
			map[string]string{Joined: "False RequestDenied", UpToDate: "Unknown NotReported",
				Reporting: "False NeverHeard", CredentialValid: "False NotUsable"},
		},
		"used": {
			waiting(JoinCredential{Made: true, Used: true, Expires: later}),
			map[string]string{Joined: "False MachineJoining", UpToDate: "Unknown NotReported",
				Reporting: "False NeverHeard", CredentialValid: "Unknown Joining"},
		},
		"in a list": {
			func(e *Evidence) { waiting(JoinCredential{})(e); e.Credential = nil },
			map[string]string{Joined: "False NotJoined", UpToDate: "Unknown NotReported",
				Reporting: "False NeverHeard", CredentialValid: "Unknown NotJoined"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := evidence()
			tt.change(&e)
			for _, c := range StatusOf(e).Conditions {
				want, differs := tt.want[c.Type]
				if !differs {
					want = good[c.Type]
				}
				if got := c.Status + " " + c.Reason; c.Type != Ready && got != want {
					t.Errorf("%s is %s, not %s", c.Type, got, want)
				}
				if _, ours := good[c.Type]; ours && c.Status == "False" && c.Message == "" &&
					c.Reason != "SecretExpired" {
					t.Errorf("%s is False, and nobody is told what to do", c.Type)
				}
			}
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
		"pending":            {with(JoinCredential{}, false), api.JoinPending, "being made"},
		"pending, and why": {with(JoinCredential{Problem: "no access"}, false), api.JoinPending,
			"no access"},
		"ready":           {with(JoinCredential{Made: true}, false), api.JoinReady, "waits"},
		"ready once more": {with(JoinCredential{Made: true}, true), api.JoinReady, "waits"},
		"denied":          {with(JoinCredential{Made: true, Denied: "no"}, false), api.JoinDenied, "no"},
		"consumed":        {with(JoinCredential{Made: true, Used: true}, false), api.JoinConsumed, ""},
		"consumed anew":   {with(JoinCredential{Made: true, Used: true}, true), api.JoinConsumed, ""},
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
		t.Run(name, func(t *testing.T) {
			got := tt.e.joinOf()
			if got == nil {
				got = &api.Join{}
			}
			if got.State != tt.state || !strings.Contains(got.Reason, tt.says) {
				t.Errorf("%+v", got)
			}
			timed := tt.state != "" && tt.state != api.JoinJoined
			if timed && (got.Expires == nil || !got.Expires.Equal(expires)) {
				t.Errorf("it expires %v", got.Expires)
			}
		})
	}
}

// An agent that is an older release than the provider is shown as that; what is no release is not
// compared.
func TestAgentCurrent(t *testing.T) {
	for agent, older := range map[string]bool{
		"v1.2.2": true, "1.1.9": true, "v1.2.3-4-g0123abc": false, "v1.2.3": false, "v1.3.0": false,
		"dev": false, "": false, "v1.2.2-4-g0123abc-dirty": true,
	} {
		e := Evidence{Provider: "v1.2.3", Status: Status{Report: api.Report{AgentVersion: agent}}}
		found := slices.ContainsFunc(StatusOf(e).Conditions, func(c api.Condition) bool {
			return c.Type == AgentCurrent && c.Status == "False" &&
				strings.Contains(c.Message, agent)
		})
		if found != older {
			t.Errorf("with an agent %q: %t", agent, found)
		}
		if e.Provider = "dev"; e.agentIsOlder() {
			t.Errorf("beside a build that is no release, %q is older", agent)
		}
	}
}
