package flexnode

import (
	"strconv"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Ready is the condition of a Node object that is shown of a node, and the reasons why it is
// Unknown.
const (
	Ready              = "Ready"
	NodeNotFound       = "NodeNotFound"
	ClusterUnreachable = "ClusterUnreachable"
)

// NodeMissing is the Ready condition of a node whose Node object is not in its cluster any more.
func NodeMissing(since time.Time) *api.Condition {
	return &api.Condition{
		Type: Ready, Status: "Unknown", LastTransitionTime: since.UTC(), Reason: NodeNotFound,
		Message: "There is no Node object of that name in the cluster.",
	}
}

// StatusOf is what is known of a node: what its agent and its cluster say, and when it was last
// seen; nil for nothing. While the cluster does not answer, Ready is Unknown: what it said last may
// not be so any more.
func StatusOf(s Status, seen time.Time, clusterReachable bool, now time.Time) *api.Status {
	status := &api.Status{
		AppliedConfigVersion: s.Report.AppliedConfigVersion,
		LastConfigApplied:    s.Report.LastConfigApplied,
		AgentVersion:         s.Report.AgentVersion,
	}
	if s.Ready != nil {
		ready := *s.Ready
		if !clusterReachable && ready.Status != "Unknown" {
			ready = api.Condition{
				Type: Ready, Status: "Unknown", Reason: ClusterUnreachable,
				Message: "The cluster does not answer; when it last did, Ready was " +
					s.Ready.Status + ".",
			}
		}
		status.Conditions = append(status.Conditions, ready)
	}
	for _, c := range s.Report.Conditions {
		if s.Ready == nil || c.Type != s.Ready.Type {
			status.Conditions = append(status.Conditions, c)
		}
	}
	if !seen.IsZero() {
		if seen.After(now) { // another replica's clock
			seen = now
		}
		when := seen.UTC()
		status.LastSeen = &when
	}
	empty := len(status.Conditions) == 0 && status.LastSeen == nil &&
		status.AppliedConfigVersion == "" && status.AgentVersion == ""
	if empty {
		return nil
	}
	return status
}

// Shown is a node as callers see it. r and config are the revision that is shown; nil in a list,
// which shows the version that agents are offered.
func Shown(
	n Node, r *Revision, config map[string]any, status *api.Status,
) api.FlexNodeConfig {
	system := n.SystemData
	shown := api.FlexNodeConfig{
		ID: n.ID, Name: baseName(n.ID), Type: api.ResourceType, ETag: n.ETag(),
		SystemData: &system,
		Properties: api.Properties{
			Desired: n.Desired, ProvisioningState: n.State, ResourceUID: n.UID,
			Config: config, Status: status,
		},
	}
	if n.State == "" {
		shown.Properties.ProvisioningState = api.Succeeded
	}
	version := n.Assigned
	if r != nil {
		version = r.Version
	}
	if version != 0 {
		shown.Properties.ConfigVersion = strconv.FormatInt(version, 10)
	}
	if n.Reason != "" {
		shown.Properties.Status = withReason(status, n)
	}
	return shown
}

// withReason adds to a status why the node cannot be as it is wanted, or has nothing to join with.
func withReason(status *api.Status, n Node) *api.Status {
	var s api.Status
	if status != nil {
		s = *status
	}
	told := api.Condition{
		Type: "Resolved", Status: "False", Reason: "CannotRender", Message: n.Reason,
	}
	if n.State != api.Failed {
		told.Type, told.Reason = "Credential", "NotIssued"
	}
	s.Conditions = append(s.Conditions[:len(s.Conditions):len(s.Conditions)], told)
	return &s
}
