package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// records are the small files of the agent's state directory, all 0600.
type records struct {
	host Machine
	dir  string
}

func (r records) path(name string) string { return path.Join(r.dir, name) }

// load reads a record into v; false when there is none.
func (r records) load(name string, v any) (bool, error) {
	data, err := r.host.ReadFile(r.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read %s: %w", r.path(name), err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return false, fmt.Errorf("cannot read %s: %w", r.path(name), err)
	}
	return true, nil
}

// encode is the form of a record.
func encode(v any) (string, error) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", fmt.Errorf("internal error: %w", err)
	}
	return string(body) + "\n", nil
}

// holds tells whether a record is v.
func (r records) holds(name string, v any) (bool, error) {
	body, err := encode(v)
	if err != nil {
		return false, err
	}
	data, err := r.host.ReadFile(r.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return string(data) == body, err
}

// save writes a record, unless it is on disk already, and returns when it is durable.
func (r records) save(ctx context.Context, name string, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	want := state.NewFile(r.path(name), 0o600, body)
	is, err := r.host.Observe(ctx, want.Key())
	if err != nil || state.Equal(is, want) {
		return err
	}
	return errors.Join(r.host.Set(ctx, state.Change{From: is, To: want}, nil), r.host.Flush())
}

// remove deletes a record and returns when that is durable.
func (r records) remove(ctx context.Context, name string) error {
	is, err := r.host.Observe(ctx, state.PathKey(r.path(name)))
	if err != nil {
		return err
	}
	if _, ok := is.(state.Absent); ok {
		return nil
	}
	gone := state.Change{From: is, To: state.Absent{Path: r.path(name)}, Undo: true}
	return errors.Join(r.host.Set(ctx, gone, nil), r.host.Flush())
}

// JoinState is what the machine is to its cluster, for people and scripts.
type JoinState struct {
	NodeName string `json:"nodeName"`
	Server   string `json:"server"`
	CASHA256 string `json:"caSHA256"`
	// Joined tells that the Node was Ready once.
	Joined bool `json:"joined"`
}

// Rejection is a generation that failed. It is not tried again until its content changes or a
// person asks.
type Rejection struct {
	Generation string `json:"generation"`
	// Received is the digest of the document that it came from.
	Received string    `json:"received"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"`
	// Log holds the last lines of the unit that failed.
	Log []string `json:"log,omitempty"`
	// Past tells that another document has been wanted since. It is not tried again all the same.
	Past bool `json:"past,omitempty"`
	// ByHand tells that it has not failed, but that a person went back from it.
	ByHand bool `json:"byHand,omitempty"`
	// Origin and Resource tell where it came from, Kubernetes is the version that it had.
	Origin     generation.Origin `json:"origin,omitzero"`
	Resource   config.Resource   `json:"resource,omitzero"`
	Kubernetes string            `json:"kubernetes,omitempty"`
	// Facts are those of the machine that the generation was rendered for.
	Facts node.Facts `json:"facts,omitzero"`
}

// mostRejections is how many rejections are kept.
const mostRejections = 10

// shown is a configuration as people and scripts read it.
type shown struct {
	Generation string `json:"generation"`
	Config     any    `json:"config"`
}

// publish writes a generation's configuration for people, without its secrets.
func (h *home) publish(ctx context.Context, name string, g *generation.Generation) error {
	if g == nil {
		return h.records.remove(ctx, name)
	}
	return h.records.save(ctx, name, shown{Generation: g.ID, Config: g.Config})
}

// publishJoin writes what the machine is to its cluster.
func (h *home) publishJoin(ctx context.Context, nodeName string) error {
	return h.records.save(ctx, joinFile, JoinState{
		NodeName: nodeName, Server: h.bindings.Server,
		CASHA256: state.Digest(h.bindings.CA), Joined: h.bindings.Joined,
	})
}

func (h *home) saveBindings(ctx context.Context) error {
	return h.records.save(ctx, bindingsFile, h.bindings)
}

func (h *home) saveTransition(ctx context.Context, t transition.Transition) error {
	h.transition = &t
	return h.records.save(ctx, transitionFile, t)
}

// clearTransition ends a transition. What it was to lead to, and has not, keeps no secret.
func (h *home) clearTransition(ctx context.Context) error {
	h.transition = nil
	if err := h.records.remove(ctx, transitionFile); err != nil {
		return err
	}
	known := len(h.secrets)
	maps.DeleteFunc(h.secrets, func(id string, _ config.Credentials) bool {
		return (h.live == nil || h.live.ID != id) && (h.applied == nil || h.applied.ID != id)
	})
	if len(h.secrets) == known {
		return nil
	}
	return h.saveSecrets(ctx)
}

// reject remembers that a transition's generation failed. That a node cannot follow its cluster to
// another address says nothing against the generation, which is the applied one.
func (h *home) reject(ctx context.Context, t transition.Transition, cause error) error {
	if t.To == t.From {
		return nil
	}
	g, err := h.store.Load(t.To)
	if err != nil {
		return err
	}
	r := h.newRejection(&g, cause.Error())
	r.Past = t.ByHand // the document that is wanted is another one
	// What was refused has touched no unit.
	if _, refused := errors.AsType[*transition.RefusedError](cause); !refused {
		r.Log = h.failedUnitLog(ctx, cause)
	}
	h.Log.Error("configuration rejected", "generation", g.ID, "reason", cause)
	return h.keepRejection(ctx, r)
}

// newRejection is the rejection of a generation now.
func (h *home) newRejection(g *generation.Generation, reason string) Rejection {
	r := Rejection{
		Generation: g.ID, Received: g.Received, Reason: reason, Origin: g.Origin,
		Kubernetes: g.Config.Kubernetes.Version, Facts: g.Facts, At: now().UTC().Truncate(time.Second),
	}
	if digest, err := h.bundleDigest(); err == nil && digest == g.Received {
		r.Resource = h.receivedResource()
	}
	return r
}

// keepRejection adds a rejection to those that are kept.
func (h *home) keepRejection(ctx context.Context, r Rejection) error {
	h.rejected = append(h.withoutRejection(r.Received), r)
	if len(h.rejected) > mostRejections {
		h.rejected = h.rejected[len(h.rejected)-mostRejections:]
	}
	return h.records.save(ctx, rejectedFile, h.rejected)
}

// rejectionOf returns why a target was rejected. The applied document may have failed for a machine
// with other facts, such as another resolver: then it is not the document that was rejected.
func (h *home) rejectionOf(t *target) (Rejection, bool) {
	r, rejected := h.rejection(t.received)
	if rejected && h.applied != nil && h.applied.Received == t.received {
		rejected = sameFacts(r.Facts, t.facts)
	}
	return r, rejected
}

// rejection returns why a document was rejected.
func (m *memory) rejection(received string) (Rejection, bool) {
	for _, r := range m.rejected {
		if r.Received == received {
			return r, true
		}
	}
	return Rejection{}, false
}

func (m *memory) withoutRejection(received string) []Rejection {
	var rest []Rejection
	for _, r := range m.rejected {
		if r.Received != received {
			rest = append(rest, r)
		}
	}
	return rest
}

// outdated tells whether want has something to note.
func (m *memory) outdated(received string) bool {
	return slices.ContainsFunc(m.rejected, func(r Rejection) bool {
		return r.Past == (r.Received == received)
	})
}

// want notes which document is wanted now: what was rejected of others is past.
func (h *home) want(ctx context.Context, received string) error {
	if !h.outdated(received) {
		return nil
	}
	for i, r := range h.rejected {
		h.rejected[i].Past = r.Received != received
	}
	return h.records.save(ctx, rejectedFile, h.rejected)
}

// forgive forgets that a document was rejected.
func (h *home) forgive(ctx context.Context, received string) error {
	if _, ok := h.rejection(received); !ok {
		return nil
	}
	h.rejected = h.withoutRejection(received)
	return h.records.save(ctx, rejectedFile, h.rejected)
}

// stamp is the time as it is recorded.
func stamp() time.Time { return now().UTC().Truncate(time.Millisecond) }

// now is the time; under testing/synctest it is the bubble's.
func now() time.Time { return time.Now() }
