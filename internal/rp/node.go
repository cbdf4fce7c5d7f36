package rp

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// PollInterval is how often an agent shall ask whether its configuration has changed, in seconds; it adds a jitter of a third.
const PollInterval = "30"

// getNode answers GET of one node. A conditional GET, which is an agent's poll, costs the store nothing as long as nothing has changed.
func (s *Server) getNode(w http.ResponseWriter, r *request) error {
	key := r.nodeKey()
	condition := r.Header.Get("If-None-Match")
	w.Header().Set("x-ms-flexnode-poll-interval", PollInterval)
	if condition != "" {
		poll, ok := s.Index.Poll(key)
		if ok && r.caller.agent(poll.Agent) {
			s.seen.note(key, s.Now())
		}
		if etag := (store.Node{Version: poll.Version}).ETag(); ok && listed(condition, etag) {
			w.Header().Set("ETag", etag)
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	node, err := s.Store.Nodes.Get(r.Context(), key)
	if err != nil {
		return err
	}
	if !node.Exists() {
		if _, err := s.parent(r.Context(), r); err != nil {
			return err
		}
		return s.notFound(r.Context(), r)
	}
	shown, err := s.show(r.Context(), key, node.Value, true)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", shown.ETag)
	arm.WriteJSON(w, http.StatusOK, shown)
	return nil
}

// show is a node as callers see it; without a secret, whole or in a list.
func (s *Server) show(ctx context.Context, key string, n store.Node, whole bool) (api.FlexNodeConfig, error) {
	id, err := arm.Parse(n.ID)
	if err != nil {
		return api.FlexNodeConfig{}, err
	}
	system := n.SystemData
	shown := api.FlexNodeConfig{
		ID: n.ID, Name: id.Name(), Type: api.ResourceType, ETag: n.ETag(), SystemData: &system,
		Properties: api.Properties{Desired: n.Desired, ProvisioningState: state(n), ConfigVersion: n.Version},
	}
	status, err := s.Index.Status(key)
	if err != nil {
		return shown, err
	}
	shown.Properties.Status = s.status(key, status)
	if whole && n.Resolved.Facts != "" {
		facts, err := s.factsOf(ctx, n.Resolved.Facts)
		if err != nil {
			return shown, err
		}
		shown.Properties.Config = render(n, facts, s.Defaults, grants{})
	}
	return shown, nil
}

func state(n store.Node) string {
	if n.State == "" {
		return api.Succeeded
	}
	return n.State
}

// status is what is known of a node: what its agent and its cluster say, and when it was last seen.
func (s *Server) status(key string, row store.Row[store.Status]) *api.Status {
	said := row.Value
	status := &api.Status{AppliedConfigVersion: said.Report.AppliedConfigVersion, LastConfigApplied: said.Report.LastConfigApplied, AgentVersion: said.Report.AgentVersion}
	if said.Ready != nil {
		status.Conditions = append(status.Conditions, *said.Ready)
	}
	for _, c := range said.Report.Conditions {
		if said.Ready == nil || c.Type != said.Ready.Type {
			status.Conditions = append(status.Conditions, c)
		}
	}
	if last := max(said.Seen, s.seen.last(key)); last > 0 {
		when := time.Unix(last, 0).UTC()
		status.LastSeen = &when
	}
	if len(status.Conditions) == 0 && status.LastSeen == nil && status.AppliedConfigVersion == "" {
		return nil
	}
	return status
}

// same tells whether two nodes have the same desired configuration, byte for byte.
func same(a, b store.Node) bool {
	x, errX := json.Marshal(a.Desired)
	y, errY := json.Marshal(b.Desired)
	return errX == nil && errY == nil && bytes.Equal(x, y) && a.Resolved == b.Resolved
}
