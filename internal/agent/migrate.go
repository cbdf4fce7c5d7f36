package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Releases before generations (the last was commit bd1efd1) kept a configuration and the facts that
// it was rendered with, and rendered again whenever they needed the node. Such records are migrated
// once: what the ledger says that was made becomes the generation, with the bytes that are on the
// machine.

// legacyRecord is applied-config.json or current-config.json of those releases; they wrote the
// second before a change and the first after it.
type legacyRecord struct {
	Config json.RawMessage `json:"config"`
	Facts  *legacyFacts    `json:"facts"`
	// Generation is only in a record of this release.
	Generation string `json:"generation"`
}

// former tells whether a record is one of those releases.
func (r legacyRecord) former() bool { return r.Facts != nil && r.Generation == "" }

// legacyFacts are node.Facts of those releases, which held the bindings too.
type legacyFacts struct {
	node.Facts
	Server     string   `json:"server"`
	CA         string   `json:"ca"`
	PodCIDR    string   `json:"podCIDR,omitempty"`
	Joined     bool     `json:"joined"`
	ForeignCNI []string `json:"foreignCNI,omitempty"`
	Program    string   `json:"program,omitempty"`
}

// toLegacy is the reverse of bindings.
func toLegacy(f node.Facts, b node.Bindings) legacyFacts {
	facts := legacyFacts{
		Facts: f, Server: b.Server, CA: b.CA, ForeignCNI: b.ForeignCNI, Program: b.Program,
		Joined: b.Joined,
	}
	if len(b.PodCIDRs) > 0 {
		facts.PodCIDR = b.PodCIDRs[0]
	}
	return facts
}

func (f legacyFacts) bindings() node.Bindings {
	b := node.Bindings{
		Server: f.Server, CA: f.CA, ForeignCNI: f.ForeignCNI, Program: f.Program, Joined: f.Joined,
	}
	if f.PodCIDR != "" {
		b.PodCIDRs = []string{f.PodCIDR}
	}
	return b
}

// legacy are the records of a machine that is not migrated.
type legacy struct {
	applied, current legacyRecord
	// node is the record of the node that the machine is: the applied one, else the one that was
	// begun.
	node   legacyRecord
	config config.Config
}

// readLegacy returns the records of an older release; nil when this release wrote them. What was
// applied decides: it is the last record that a migration replaces.
func (r records) readLegacy() (*legacy, error) {
	var ours struct {
		Generation string `json:"generation"`
	}
	if _, err := r.load(appliedFile, &ours); err != nil || ours.Generation != "" {
		return nil, err
	}
	var l legacy
	proved, err := r.load(appliedFile, &l.applied)
	if err != nil {
		return nil, err
	}
	if _, err := r.load(currentFile, &l.current); err != nil {
		return nil, err
	}
	l.node = l.applied
	if !proved {
		l.node = l.current
	}
	if !l.node.former() {
		return nil, nil
	}
	if err := json.Unmarshal(l.node.Config, &l.config); err != nil {
		return nil, fmt.Errorf("cannot read the configuration of the former release: %w", err)
	}
	return &l, nil
}

// changing tells whether a change of the applied node was under way.
func (l *legacy) changing() bool {
	return l.applied.former() && l.current.former() &&
		!bytes.Equal(compact(l.applied.Config), compact(l.current.Config))
}

func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return raw
	}
	return b.Bytes()
}

// fromLegacy is the memory of a machine that is not migrated. It reads only.
func (h *home) fromLegacy(ctx context.Context, l *legacy) (*memory, error) {
	b := l.node.Facts.bindings()
	g, err := h.legacyGeneration(ctx, l, b)
	if err != nil {
		return nil, err
	}
	m := &memory{live: g, bindings: bindings{Bindings: b}, legacy: l}
	m.secrets = secrets{g.ID: config.Credentials{ClientSecret: l.config.Credentials().ClientSecret}}
	if l.applied.former() {
		m.applied = g
	}
	return m, nil
}

// legacyGeneration is the generation that a machine is migrated to. Of a machine that was killed in
// the middle of a join or a change nobody knows all bytes of what was applied, or there are none:
// then it is what this release renders, and the difference is drift until the join or the change is
// finished.
func (h *home) legacyGeneration(
	ctx context.Context, l *legacy, b node.Bindings,
) (*generation.Generation, error) {
	if id := l.current.Generation; id != "" { // a migration that was killed has decided
		g, err := h.store.Load(id)
		return &g, err
	}
	facts := l.node.Facts.Facts
	made := append(h.claimedLog(l.config), node.Render(l.config, facts)...)
	if l.applied.former() && !l.changing() {
		kept, err := h.keptNode(ctx, l.config, made, b)
		if err != nil {
			return nil, err
		}
		if kept != nil {
			made = kept
		}
	}
	g, err := generation.New(l.config, "", facts, made, generation.Origin{Kind: "migration"})
	return &g, err
}

// claimedLog is the directory of the log, where an earlier release has made it a part of the node.
func (h *home) claimedLog(c config.Config) state.Desired {
	entry, claimed := h.engine.Journal.Ledger().Entry(state.PathKey(c.Agent.LogDir))
	if !claimed {
		return nil
	}
	return state.Desired{{Step: entry.Step, Resource: entry.Ours.Resource}}
}

// keptNode is the node as it was made: what this release renders of it, in that order and with its
// placeholders, but the resources that the ledger remembers where they are others. What this
// release renders in addition is left out. It returns nil when the bytes that were made are lost.
func (h *home) keptNode(
	ctx context.Context, c config.Config, rendered state.Desired, b node.Bindings,
) (state.Desired, error) {
	former := node.Formerly(c)
	var kept state.Desired
	for _, item := range rendered {
		bound := node.Bind(state.Desired{item}, b)
		if len(bound) == 0 { // part of the node in another situation only
			kept = append(kept, item)
			continue
		}
		want := bound[0].Resource
		entry, remembered := h.engine.Journal.Ledger().Entry(want.Key())
		if was, moved := former[want.Key()]; moved && !remembered {
			entry, remembered = h.engine.Journal.Ledger().Entry(was)
		}
		_, claim := want.(state.Residue)
		if claim && !remembered { // the release before may not know its kind
			continue
		}
		if !remembered { // it is new, or was on the machine before
			is, err := h.Machine.Observe(ctx, want.Key())
			if err != nil {
				return nil, err
			}
			if state.Satisfies(is, want) {
				kept = append(kept, item)
			}
			continue
		}
		if !claim && !state.Equal(entry.Ours.Resource, want) {
			made, err := h.madeResource(entry.Ours.Resource, b)
			if made == nil || err != nil {
				return nil, err
			}
			item.Resource = made
		}
		kept = append(kept, item)
	}
	return kept, nil
}

// madeResource is a remembered resource, a file with the bytes that are on the machine; nil when
// those are no longer what was made.
func (h *home) madeResource(ours state.Resource, b node.Bindings) (state.Resource, error) {
	file, ok := ours.(state.File)
	if !ok {
		return ours, nil
	}
	data, err := h.Machine.ReadFile(file.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read %s: %w", file.Path, err)
	}
	if err != nil || state.Digest(string(data)) != file.SHA256 {
		return nil, nil
	}
	file.Content = node.Unbind(string(data), b)
	file.SHA256 = state.Digest(file.Content)
	return file, nil
}

// migrate writes the records of this release. The applied configuration is replaced last, so that a
// run that is killed before begins again.
func (h *home) migrate(ctx context.Context) error {
	g, applied := h.live, h.applied
	for _, write := range []func(context.Context) error{
		h.completeLedger,
		func(ctx context.Context) error { return h.store.Save(ctx, *g) },
		h.saveSecrets,
		h.saveBindings,
		h.clearTransition,
		func(ctx context.Context) error { return h.point(ctx, generation.Live, g) },
		func(ctx context.Context) error { return h.point(ctx, generation.Applied, applied) },
		func(ctx context.Context) error { return h.records.remove(ctx, previousFile) },
		func(ctx context.Context) error { return h.publish(ctx, currentFile, g) },
		func(ctx context.Context) error { return h.publish(ctx, appliedFile, applied) },
	} {
		if err := write(ctx); err != nil {
			return fmt.Errorf("cannot migrate the records of the former release: %w", err)
		}
	}
	h.Log.Info("records of the former release migrated", "generation", g.ID)
	h.legacy = nil
	return nil
}

func (h *home) point(ctx context.Context, p generation.Pointer, g *generation.Generation) error {
	if g == nil {
		return nil
	}
	return h.store.Point(ctx, p, g.ID)
}

// completeLedger enters into the ledger what older releases did not record: which directories were
// mount points before, and what was made before a change that is under way.
func (h *home) completeLedger(ctx context.Context) error {
	ledger, seen := h.engine.Journal.Ledger(), make(state.Observed)
	for _, e := range ledger.Entries {
		switch ours := e.Ours.Resource.(type) {
		case state.Dir, state.File, state.Link:
			is, err := h.Machine.Observe(ctx, ours.Key())
			if err != nil {
				return err
			}
			seen[ours.Key()] = is
		}
	}
	ledger = ledger.WithMounts(seen)
	if h.legacy.changing() {
		ledger = ledger.WithPrior(seen)
	}
	return h.engine.Journal.Save(ctx, ledger)
}
