package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Report is a plan as people and programs read it.
type Report struct {
	Changes   []Entry    `json:"changes"`
	Downloads []Download `json:"downloads,omitempty"`
	Hosts     []string   `json:"hosts,omitempty"`
}

// Entry is one change: what is done to what, and what is there now. For drift, Expected is what the applied configuration says
// and Found what is there.
type Entry struct {
	Step     state.Step `json:"step"`
	Key      state.Key  `json:"key"`
	Action   string     `json:"action"`
	Expected string     `json:"expected"`
	Found    string     `json:"found"`
}

// Download is an artifact that the store does not have yet. Size is 0 when unknown.
type Download struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"url"`
	Size    int64  `json:"size"`
}

// laterCIDR stands in a plan for the pod subnet that only the cluster knows.
const laterCIDR = "the subnet that the cluster allocates"

// Plan tells exactly what Bootstrap would do with c, and touches nothing.
func (a *Agent) Plan(ctx context.Context, c config.Config) (Report, error) {
	s, err := a.look()
	if err != nil {
		return Report{}, err
	}
	if err := s.preflight(ctx, c); err != nil {
		return Report{}, err
	}
	g, err := s.goal(ctx, c)
	if err != nil {
		return Report{}, err
	}
	plan, err := s.foresee(ctx, g)
	if err != nil {
		return Report{}, err
	}
	report := Report{Changes: entries(plan)}
	s.downloadsOf(ctx, g, &report)
	return report, nil
}

// foresee plans all rounds of a bootstrap: what is known now, then what the cluster tells, then what a joined node has.
func (s *session) foresee(ctx context.Context, g *goal) (state.Plan, error) {
	first, second := g.facts, g.facts
	if second.PodCIDR == "" {
		second.PodCIDR = laterCIDR
	}
	third := second
	third.Joined = true
	rounds := []state.Desired{node.Render(g.config, first), node.Render(g.config, second), node.Render(g.config, third)}
	seen, err := s.engine.Observe(ctx, slices.Concat(rounds...))
	if err != nil {
		return nil, err
	}
	ledger := s.engine.Journal.Ledger()
	var all state.Plan
	for _, want := range rounds {
		plan := state.Diff(want, seen, ledger)
		seen, ledger = state.After(seen, plan), ledger.Record(plan).Settled(plan)
		all = append(all, plan...)
	}
	return all, nil
}

func entries(plan state.Plan) []Entry {
	list := make([]Entry, len(plan))
	for i, c := range plan {
		list[i] = Entry{Step: c.Step, Key: c.To.Key(), Action: state.Describe(c), Expected: state.Show(c.To), Found: state.Show(c.From)}
	}
	return list
}

// downloadsOf adds what would be downloaded, and from where.
func (s *session) downloadsOf(ctx context.Context, g *goal, report *Report) {
	missing := artifact.Missing(s.path(node.StoreDir), g.artifacts)
	if len(missing) == 0 {
		return
	}
	source := s.source(g.config)
	missing = artifact.Measure(ctx, source, missing)
	for _, a := range missing {
		report.Downloads = append(report.Downloads, Download{Name: string(a.Name), Version: a.Version, URL: artifact.Redact(a.URL), Size: a.Size})
	}
	report.Hosts, _ = artifact.Hosts(missing, source)
}

// Drift compares the machine with the configuration that was applied last. With repair, what differs is put right.
func (a *Agent) Drift(ctx context.Context, repair bool) (Report, error) {
	if !repair {
		s, err := a.look()
		if err != nil {
			return Report{}, err
		}
		plan, _, err := s.drift(ctx)
		return Report{Changes: entries(plan)}, err
	}
	s, err := a.open("drift --repair")
	if err != nil {
		return Report{}, err
	}
	defer s.close()
	plan, g, err := s.drift(ctx)
	if err != nil || len(plan) == 0 {
		return Report{}, err
	}
	return Report{Changes: entries(plan)}, s.repair(ctx, g, plan)
}

// drift returns what would have to change for the machine to be what was applied, and that goal.
func (s *session) drift(ctx context.Context) (state.Plan, *goal, error) {
	g, err := s.lastHealthy(ctx)
	if err != nil {
		return nil, nil, err
	}
	plan, err := s.engine.Plan(ctx, node.Render(g.config, g.facts))
	return plan, g, err
}

// repair applies a plan of drift. Artifacts that the store has lost are fetched again.
func (s *session) repair(ctx context.Context, g *goal, plan state.Plan) error {
	if err := s.restock(ctx, g); err != nil {
		return err
	}
	view := &steps{agent: s.Agent}
	s.engine.Emit = view.emit
	if err := s.engine.Apply(ctx, plan); err != nil {
		return err
	}
	view.done("")
	return nil
}

// restock fetches the artifacts of g that are not in the store.
func (s *session) restock(ctx context.Context, g *goal) error {
	for name, dir := range g.facts.Store {
		is, err := s.Machine.Observe(ctx, state.PathKey(dir))
		if err != nil {
			return err
		}
		if _, there := is.(state.Dir); there {
			continue
		}
		s.show(progress.Event{Kind: progress.Note, Text: name + " is missing from the store and is fetched again"})
		if err := s.resolve(ctx, g); err != nil {
			return err
		}
		return s.fetcher(g.config).Run(ctx, g.artifacts)
	}
	return nil
}

// WriteText writes a plan for people: its changes by step, then what is downloaded.
func (r Report) WriteText(w io.Writer) {
	step := state.Step("")
	for _, e := range r.Changes {
		name := ""
		if e.Step != step {
			step, name = e.Step, string(e.Step)
		}
		fmt.Fprintf(w, "%-12s %s\n", name, e.Action)
	}
	for i, d := range r.Downloads {
		name := ""
		if i == 0 {
			name = "download"
		}
		fmt.Fprintf(w, "%-12s %s %s (%s)\n", name, d.Name, d.Version, bytesText(d.Size))
	}
	if len(r.Hosts) > 0 {
		fmt.Fprintf(w, "%-12s", "from")
		for _, h := range r.Hosts {
			fmt.Fprintf(w, " %s", h)
		}
		fmt.Fprintln(w)
	}
}

// WriteDrift writes what has drifted: what, expected and found.
func (r Report) WriteDrift(w io.Writer) {
	for _, e := range r.Changes {
		fmt.Fprintf(w, "%s\n  expected  %s\n  found     %s\n", e.Key, e.Expected, e.Found)
	}
}

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	if r.Changes == nil {
		r.Changes = []Entry{}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func bytesText(n int64) string {
	if n == 0 {
		return "size unknown"
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}
