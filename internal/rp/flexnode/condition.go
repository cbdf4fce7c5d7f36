package flexnode

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/release"
)

// The conditions that the provider derives itself.
const (
	Joined          = "Joined"
	UpToDate        = "UpToDate"
	Reporting       = "Reporting"
	CredentialValid = "CredentialValid"
	// NoChangeWaiting is a condition of the agent; while it is False, UpToDate has its reason.
	NoChangeWaiting = "NoChangeWaiting"
	// SecondMachineSeen is present, and True, only after another machine than the node's was refused.
	SecondMachineSeen = "SecondMachine"
	// VersionsKnown is present only while it is False.
	VersionsKnown = "VersionsKnown"
	// AgentCurrent is present, and False, only while the agent is older than the provider.
	AgentCurrent = "AgentCurrent"
)

// silentAfter is the time after which an agent that follows its resource counts as silent: three
// times its longest back-off, which is also the time that replicas take to tell each other
// (store.Seen).
const silentAfter = 15 * time.Minute

func (e Evidence) derived(join *api.Join) []api.Condition {
	var list []api.Condition
	add := func(kind string, c api.Condition) {
		c.Type = kind
		list = append(list, c)
	}
	add(Joined, e.joined(join))
	add(UpToDate, e.upToDate())
	add(Reporting, e.reporting())
	add(CredentialValid, e.credentialValid(join))
	if unknown := unpinned(e.Node.Chosen.Versions); len(unknown) > 0 {
		add(VersionsKnown, is("False", "NotPinned", fmt.Sprintf("The provider does not know the digest "+
			"of %s. The agent takes it from the project's checksum file, which it must reach over https "+
			"or find in artifacts.directory, or from artifacts.overrides; node-problem-detector has "+
			"no such file.", strings.Join(unknown, ", "))))
	}
	if e.agentIsOlder() {
		add(AgentCurrent, is("False", "AgentOlder", fmt.Sprintf("The agent, %s, is older than the "+
			"provider, %s, and may not know what it offers. Upgrade the package aks-flex-node on "+
			"the machine.", e.Status.Report.AgentVersion, e.Provider)))
	}
	if second := e.Node.Second; second != nil {
		add(SecondMachineSeen, secondMachine(*second, e.Node.MachineKey))
	}
	return list
}

// agentIsOlder reports whether the agent is of an older release than the provider. A build between
// two releases counts as the earlier one; a version that is no release is not compared.
func (e Evidence) agentIsOlder() bool {
	agent, known := release.Parse(e.Status.Report.AgentVersion)
	provider, ok := release.Parse(e.Provider)
	agent.Pre, provider.Pre = "", ""
	return known && ok && agent.Compare(provider) < 0
}

// is returns a condition; the caller adds its type.
func is(status, reason, message string) api.Condition {
	return api.Condition{Status: status, Reason: reason, Message: message}
}

func since(at time.Time, c api.Condition) api.Condition {
	c.LastTransitionTime = at
	return c
}

// registered reports whether the Node object exists, as its cluster last reported.
func (e Evidence) registered() bool {
	return e.Status.Ready != nil && e.Status.Ready.Reason != NodeNotFound &&
		e.Status.Ready.Reason != NodeForeign
}

func (e Evidence) joined(join *api.Join) api.Condition {
	switch ready := e.Status.Ready; {
	case e.registered():
		return is("True", "NodeRegistered", "")
	case ready != nil && ready.Reason == NodeForeign:
		return is("False", NodeForeign, ready.Message)
	case ready != nil && (e.Credential == nil || e.Credential.Issued): // no other machine may join
		return since(ready.LastTransitionTime, is("False", NodeNotFound, "The Node object was "+
			"deleted. The agent registers the node again if driftPolicy is repair; otherwise run "+
			"`aks-flex-node bootstrap` on the machine. For another machine, or one that has left, "+again))
	case join != nil:
		return is("False", map[string]string{
			api.JoinPending: "CredentialPending", api.JoinReady: "WaitingForMachine",
			api.JoinConsumed: "MachineJoining", api.JoinDenied: "RequestDenied",
			api.JoinExpired: "CredentialExpired",
		}[join.State], join.Reason)
	case e.Node.Credential != "":
		return is("False", "NotJoined", "A machine may be joining: GET the node for details.")
	}
	return is("False", "NothingToJoinWith", "No machine has joined. "+again)
}

func (e Evidence) upToDate() api.Condition {
	n, report := e.Node, e.Status.Report
	applied, config := report.AppliedConfigVersion, cmp.Or(report.Config, &api.Applied{})
	observed, failed := config.Observed, config.Failed
	offered := strconv.FormatInt(n.Assigned, 10)
	switch {
	case n.Revision == 0 || n.Assigned == 0:
		return is("Unknown", "NotRendered", "There is no configuration yet.")
	case n.Lost(e.Status.Applied()) != 0:
		return is("False", "Restored", fmt.Sprintf("The node runs configuration %s, which the provider "+
			"does not know since it was restored from a backup, so no other configuration is offered. "+
			"PUT the node with the desired configuration, or roll it back to a configuration of "+
			"listHistory.", applied))
	case n.Failed == n.Revision && failed == nil: // new facts have replaced what has failed
		return is("False", "Failed", "The node has refused this configuration, or was not healthy with "+
			"it and has rolled back. Change the configuration, or roll the node back.")
	case n.Failed == n.Revision, failed != nil && failed.Version == strconv.FormatInt(n.Revision, 10):
		return since(*cmp.Or(failed.At, &time.Time{}), is("False", "Failed", fmt.Sprintf("The node "+
			"has refused configuration %s (%s), or was not healthy with it and has rolled back. See "+
			"status.config.failed and the condition ConfigurationAccepted. Unless the reason is "+
			"RevisionNotTrusted, change the configuration, or roll the node back.", failed.Version,
			cmp.Or(failed.Reason, "no reason given"))))
	case n.Assigned != n.Revision:
		if n.leftOut() {
			return is("False", "LeftOut", fmt.Sprintf("The node keeps configuration %s: it has failed "+
				"its last %d changes and receives no other one. Repair the machine, then roll the node "+
				"back to configuration %d.", offered, leftOutAfter, n.Revision))
		}
		if n.Desired.UpgradePolicy.Paused {
			return is("False", "AwaitingRollout", fmt.Sprintf("The node is paused: it keeps "+
				"configuration %s, and waits for %d until upgradePolicy.paused is false.", offered, n.Revision))
		}
		return is("False", "AwaitingRollout", fmt.Sprintf("The node keeps configuration %s until the "+
			"rollout policy of its cluster admits it to %d. The changes of summarizeFlexNodes show the "+
			"progress of each change, and why it is held.", offered, n.Revision))
	case applied == offered:
		c := since(*cmp.Or(report.LastConfigApplied, &time.Time{}), is("True", "Applied", ""))
		if ready := e.Status.Ready; e.Reachable && ready != nil && ready.Status != "True" {
			c.Reason, c.Message = "AppliedNotReady", "The node runs this configuration, and its Node "+
				"is not Ready: see the condition Ready."
		}
		return c
	case applied == "" && !n.Desired.ContinuousMonitoring:
		return is("Unknown", "NotMonitored", notMonitored)
	case applied == "":
		return is("Unknown", "NotReported", "The agent has not reported yet what it has applied.")
	case observed == offered:
		if own := e.reported(NoChangeWaiting); own != nil && own.Status == "False" {
			return since(own.LastTransitionTime, is("False", own.Reason,
				"The agent has the configuration, and its change waits: "+own.Message))
		}
		return is("False", "Applying", "The agent has the configuration and is applying it.")
	}
	return is("False", "Outdated", fmt.Sprintf(
		"The agent runs configuration %s and has not fetched %s.", applied, offered))
}

const notMonitored = "The node does not follow this resource: set continuousMonitoring, POST " +
	"regenerateToken, and run `aks-flex-node agent --config-url-file -` on the machine."

// HeardLately reports whether an agent that was last heard of at a time is not silent.
func HeardLately(seen, now time.Time) bool { return now.Sub(seen) <= silentAfter }

func (e Evidence) heard() bool { return HeardLately(e.Seen, e.Now) }

func (e Evidence) reporting() api.Condition {
	const look = " Run `aks-flex-node status` and `aks-flex-node doctor` on the machine."
	switch {
	case e.heard():
		return is("True", "Heard", "")
	case !e.Node.Desired.ContinuousMonitoring:
		return is("Unknown", "NotMonitored", notMonitored)
	case e.Seen.IsZero():
		return is("False", "NeverHeard", "The agent has never contacted the provider."+look)
	}
	return since(e.Seen.Add(silentAfter).UTC(), is("False", "Silent", fmt.Sprintf(
		"The agent last contacted the provider at %s.", e.Seen.UTC().Format(time.RFC3339))+look))
}

// credentialValid returns the condition of the node's credential: until it has joined, of the
// credential to join with.
func (e Evidence) credentialValid(join *api.Join) api.Condition {
	joined := e.registered()
	switch own := e.reported(CredentialValid); {
	case own != nil && own.Status == "False":
		return *own
	case !joined && join == nil && e.Node.Credential != "":
		return is("Unknown", "NotJoined", "GET the node for details.")
	case !joined && join == nil:
		return is("False", "NothingToJoinWith", "No machine has joined. "+again)
	case !joined && (join.State == api.JoinPending || join.State == api.JoinConsumed):
		return is("Unknown", "Joining", join.Reason)
	case !joined && join.State == api.JoinReady:
		return is("True", "WaitingForMachine", "")
	case !joined && join.State == api.JoinExpired && join.Expires != nil:
		return since(join.Expires.UTC(), is("False", "NotUsable", join.Reason))
	case !joined:
		return is("False", "NotUsable", join.Reason)
	case e.Node.Former != "":
		return is("Unknown", "IdentityNotSeen", "The agent has not used the node's present "+
			"identity yet; the one before may still poll. An identity that was never seen may "+
			"lack a secret: see azureAuth.")
	case e.Node.Desired.ContinuousMonitoring && e.heard():
		return is("True", "IdentityAccepted", "")
	case e.Reachable && e.Status.Ready.Status == "True":
		return is("True", "KubeletAccepted", "")
	}
	return is("Unknown", "NotSeen", "Neither the agent nor kubelet has been seen recently.")
}

// reported returns a condition that the agent reports; nil if it does not.
func (e Evidence) reported(kind string) *api.Condition {
	return find(e.Status.Report.Conditions, kind)
}

// JoinCredential describes the credential that a machine joins with.
type JoinCredential struct {
	// Made reports that its URL answers, Used that a machine has used it, Ended that it is revoked.
	Made, Used, Ended bool
	// Issued reports that a machine received what it requested with it.
	Issued  bool
	Expires time.Time
	// Denied is the reason of the last denied certificate request, Problem the reason that the
	// credential cannot be made.
	Denied, Problem string
}

// JoinEnd describes the end of a credential that no machine joined with. It is kept for the owner,
// who may have handed out its URL.
type JoinEnd struct {
	State   string    `json:"state"` // api.JoinExpired, api.JoinDenied or api.JoinConsumed
	Expires time.Time `json:"expires"`
	Reason  string    `json:"reason,omitempty"`
}

// again is the advice to an owner whose node has no credential left to join with.
const again = "POST regenerateToken to create another URL."

// End returns the end of a credential that its node refers to; nil if a machine has joined with it.
func (c JoinCredential) End() *JoinEnd {
	switch {
	case c.Issued:
		return nil
	case c.Used:
		return &JoinEnd{api.JoinConsumed, c.Expires, "A machine has used it, but received no " +
			"certificate in time. Check the machine; " + again}
	case c.Denied != "":
		return &JoinEnd{api.JoinDenied, c.Expires, denied(c.Denied)}
	}
	return &JoinEnd{api.JoinExpired, c.Expires, "No machine has used it in time. " + again}
}

func denied(why string) string {
	return fmt.Sprintf("A certificate request was denied: %s. Use the configuration of this node "+
		"on one machine alone; %s", shorten(why), again)
}

// joinOf returns the progress of the join; nil if nothing was issued, or it is not known.
func (e Evidence) joinOf() *api.Join {
	if c := e.Credential; c != nil {
		return c.join(e.registered())
	}
	end := e.Node.Ended
	switch {
	case e.registered():
		return &api.Join{State: api.JoinJoined}
	case e.Node.Credential != "" || end == nil:
		return nil
	}
	return &api.Join{State: end.State, Expires: &end.Expires, Reason: end.Reason}
}

func (c JoinCredential) join(registered bool) *api.Join {
	j := &api.Join{Expires: new(c.Expires.UTC())}
	switch end := c.End(); {
	case c.Used && c.Issued && registered:
		return &api.Join{State: api.JoinJoined}
	case c.Used:
		j.State, j.Reason = api.JoinConsumed, "A machine has used it; its Node does not exist yet."
		if c.Denied != "" {
			j.Reason += " " + denied(c.Denied)
		}
	case c.Ended && end != nil:
		j.State, j.Reason = end.State, end.Reason
	case c.Denied != "":
		j.State, j.Reason = api.JoinDenied, denied(c.Denied)
	case c.Made:
		j.State, j.Reason = api.JoinReady, "The URL waits for a machine."
	default:
		j.State, j.Reason = api.JoinPending, cmp.Or(c.Problem, "It is being created in the cluster.")
	}
	return j
}
