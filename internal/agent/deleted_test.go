package agent

import (
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// A check borrows the client of the watch only for the very node that is watched, and only while it
// is.
func TestBorrow(t *testing.T) {
	for name, tt := range map[string]struct {
		change   func(*home)
		ended    bool
		borrowed bool
	}{
		"the node that is watched": {change: func(*home) {}, borrowed: true},
		"the watch has ended":      {change: func(*home) {}, ended: true},
		"another generation":       {change: func(h *home) { h.applied.ID = "b" }},
		"another address":          {change: func(h *home) { h.bindings.Server = "https://y" }},
		"another CA":               {change: func(h *home) { h.bindings.CA = "other" }},
		"no node":                  {change: func(h *home) { h.live, h.applied = nil, nil }},
		"a change under way": {change: func(h *home) {
			h.live = &generation.Generation{ID: "b"}
		}},
		"a repair under way": {change: func(h *home) {
			h.transition = &transition.Transition{Kind: transition.Repair}
		}},
		"tokens": {change: func(h *home) {
			h.applied.Config.Azure.ServicePrincipal = &config.ServicePrincipal{}
			h.applied.Config.Azure.KubeletCredential = config.CredentialToken
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a, client := &Agent{}, &kube.Client{}
			end := a.lend(client, "a", where{Server: "https://x", CA: "ca"})
			if tt.ended {
				end()
			}
			g := &generation.Generation{ID: "a"}
			h := &home{Agent: a, memory: memory{live: g, applied: g}}
			h.bindings.Server, h.bindings.CA = "https://x", "ca"
			tt.change(h)
			h.borrow()
			if got := h.borrowed != nil; got != tt.borrowed {
				t.Errorf("borrowed is %v, want %v", got, tt.borrowed)
			}
		})
	}
}
