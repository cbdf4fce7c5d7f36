package flexnode

import (
	"cmp"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Ready is the shown condition of a Node object; the others are reasons why it is Unknown.
const (
	Ready              = "Ready"
	NodeNotFound       = "NodeNotFound"
	NodeForeign        = "NodeForeign"
	ClusterUnreachable = "ClusterUnreachable"
)

// NodeMissing returns the Ready condition of a node whose Node object is not in its cluster.
func NodeMissing(since time.Time) *api.Condition {
	return unknownReady(since, NodeNotFound, "The cluster has no Node object of that name.")
}

// ForeignNode returns the Ready condition of a node whose name another installation's Node has.
func ForeignNode(since time.Time) *api.Condition {
	return unknownReady(since, NodeForeign, "The Node of that name belongs to another installation "+
		"of the provider, according to its labels. It is not changed.")
}

func unknownReady(since time.Time, reason, message string) *api.Condition {
	return &api.Condition{
		Type: Ready, Status: "Unknown", LastTransitionTime: since.UTC(), Reason: reason, Message: message,
	}
}

// Evidence holds the inputs of a node's status.
type Evidence struct {
	Node   Node
	Status Status
	// Seen is when its agent was last heard of; zero is never.
	Seen time.Time
	// Reachable reports whether its cluster answers.
	Reachable bool
	// Credential is the one that a machine may join with; nil for none, or if it was not read.
	Credential *JoinCredential
	// Provider is the version of the provider.
	Provider string
	Now      time.Time
}

// StatusOf returns the status of a node: the reports of its agent and its cluster, and derived
// conditions. While the cluster does not answer, Ready is Unknown: its last value may be stale.
func StatusOf(e Evidence) *api.Status {
	if e.Seen.After(e.Now) { // another replica's clock
		e.Seen = e.Now
	}
	report := e.Status.Report
	config := *cmp.Or(report.Config, &api.Applied{})
	components := *cmp.Or(report.Components, &api.Components{})
	// These two values have two places (ReadReport).
	config.Applied, components.Agent = report.AppliedConfigVersion, report.AgentVersion
	status := &api.Status{
		AppliedConfigVersion: report.AppliedConfigVersion,
		LastConfigApplied:    report.LastConfigApplied, AgentVersion: report.AgentVersion,
		Config: unlessEmpty(config), Components: unlessEmpty(components),
		Join: e.joinOf(), Drift: report.Drift,
	}
	if ready := e.ready(); ready != nil {
		status.Conditions = append(status.Conditions, *ready)
	}
	status.Conditions = append(status.Conditions, e.derived(status.Join)...)
	own := status.Conditions
	for _, c := range report.Conditions {
		if find(own, c.Type) == nil {
			status.Conditions = append(status.Conditions, c)
		}
	}
	if !e.Seen.IsZero() {
		status.LastSeen = new(e.Seen.UTC())
	}
	return status
}

// unlessEmpty returns a value; nil for the zero one.
func unlessEmpty[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

// ready returns the Ready condition to show; nil for a node that never had a Node object.
func (e Evidence) ready() *api.Condition {
	known := e.Status.Ready
	if known == nil || e.Reachable || known.Status == "Unknown" {
		return known
	}
	return unknownReady(time.Time{}, ClusterUnreachable,
		"The cluster does not answer; the last known Ready status is "+known.Status+".")
}

// Brief returns a status as lists show it, without log and drifted items.
func Brief(s *api.Status) *api.Status {
	next := *s
	if c := s.Config; c != nil && c.Failed != nil {
		config, failed := *c, *c.Failed
		failed.Log = ""
		config.Failed, next.Config = &failed, &config
	}
	if s.Drift != nil {
		drift := *s.Drift
		drift.Items, next.Drift = nil, &drift
	}
	return &next
}

// Shown returns a node as callers see it, with a revision and its config; nil in a list.
func Shown(n Node, r *Revision, config []byte, status *api.Status) api.FlexNodeConfig {
	shown := api.FlexNodeConfig{
		ID: n.ID, Name: LastOf(n.ID), Type: api.ResourceType, ETag: n.ETag(),
		SystemData: new(n.SystemData),
		Properties: api.Properties{
			Desired: n.Desired.API(), ProvisioningState: cmp.Or(n.State, api.Succeeded), ResourceUID: n.UID,
			Config: config, Status: status,
		},
	}
	shown.Properties.ConfigVersion = ShownVersion(n.Revision)
	if r != nil {
		shown.Properties.ConfigVersion = ShownVersion(r.Version)
	}
	if n.Reason == "" {
		return shown
	}
	s := *cmp.Or(status, &api.Status{})
	told := api.Condition{Type: "Resolved", Status: "False", Reason: "CannotRender", Message: n.Reason}
	if n.State != api.Failed { // it is rendered, and has no credential
		told.Type, told.Reason = "Credential", "NotIssued"
	}
	s.Conditions = append(s.Conditions[:len(s.Conditions):len(s.Conditions)], told)
	shown.Properties.Status = &s
	return shown
}
