package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/progress"
)

// Result sums up what a verb has done.
type Result struct {
	NodeName string        `json:"nodeName"`
	Ready    bool          `json:"ready"`
	Changes  int           `json:"changes"`
	Took     time.Duration `json:"-"`
	Seconds  float64       `json:"seconds"`
}

// Bootstrap makes this machine the node that c describes, and returns when the Node is Ready and labelled. A machine that is
// that node already is not touched. What another run left unfinished is finished. A machine that was healthy before, and is not
// with c, goes back to the configuration that was.
func (a *Agent) Bootstrap(ctx context.Context, c config.Config) (Result, error) {
	began := a.now()
	before, err := a.look()
	if err != nil {
		return Result{}, err
	}
	if err := before.preflight(ctx, c); err != nil {
		return Result{}, err
	}
	s, err := a.open("bootstrap")
	if err != nil {
		return Result{}, err
	}
	defer s.close()
	s.asked = before.asked
	changes, err := s.bootstrap(ctx, c)
	took := a.now().Sub(began)
	return Result{NodeName: c.Agent.NodeName, Ready: err == nil, Changes: changes, Took: took, Seconds: took.Seconds()}, err
}

func (s *session) bootstrap(ctx context.Context, c config.Config) (changes int, err error) {
	goal, err := s.goal(ctx, c)
	if err != nil {
		return 0, err
	}
	if done, err := s.nothingToDo(ctx, goal); done || err != nil {
		return 0, err
	}
	if foreign := goal.facts.ForeignCNI; len(foreign) > 0 {
		s.warn("%s has a pod network already (%s); ours stays away", c.Paths.CNI.ConfDir, strings.Join(foreign, ", "))
	}
	view := &steps{agent: s.Agent}
	if err := s.announce(ctx, goal, view); err != nil {
		return 0, err
	}
	changes, err = s.converge(ctx, goal, view)
	if err != nil {
		return changes, s.goBack(ctx, goal, err)
	}
	return changes, s.commit(ctx, goal)
}

// nothingToDo tells whether the machine is the node already: an empty plan, the same configuration as the healthy one, and a
// Node that is Ready.
func (s *session) nothingToDo(ctx context.Context, g *goal) (bool, error) {
	if !g.facts.Joined {
		return false, nil
	}
	plan, err := s.engine.Plan(ctx, node.Render(g.config, g.facts))
	if err != nil || len(plan) > 0 {
		return false, err
	}
	want, err := newGeneration(g.config, g.facts)
	if err != nil {
		return false, err
	}
	return g.applied != nil && g.applied.sameConfig(want) && s.readyNow(ctx, g), nil
}

// announce claims what must be ours before the first download, and puts on disk what is about to happen.
func (s *session) announce(ctx context.Context, g *goal, view *steps) error {
	plan, err := s.engine.Plan(ctx, node.Render(g.config, g.facts))
	if err != nil {
		return err
	}
	s.engine.Emit, view.quiet = view.emit, true
	defer func() { view.quiet = false }()
	if err := s.engine.Apply(ctx, plan.Only(node.Foundation(g.config).Keys())); err != nil {
		return err
	}
	current, err := newGeneration(g.config, g.facts)
	if err != nil {
		return err
	}
	if err := s.records.save(ctx, joinFile, g.joinState(false)); err != nil {
		return err
	}
	return s.records.save(ctx, currentFile, current)
}

// commit records that the node is healthy as configured.
func (s *session) commit(ctx context.Context, g *goal) error {
	next, err := newGeneration(g.config, g.facts)
	if err != nil {
		return err
	}
	if g.applied != nil && !g.applied.sameConfig(next) {
		if err := s.records.save(ctx, previousFile, g.applied); err != nil {
			return err
		}
	}
	if err := s.records.save(ctx, appliedFile, next); err != nil {
		return err
	}
	if err := s.records.save(ctx, currentFile, next); err != nil {
		return err
	}
	if err := s.collect(g); err != nil {
		return err
	}
	return s.records.save(ctx, joinFile, g.joinState(true))
}

// goBack returns a machine that was healthy to the configuration that it was healthy with. The cause of the failure stays
// the error.
func (s *session) goBack(ctx context.Context, failed *goal, cause error) error {
	tried, err := newGeneration(failed.config, failed.facts)
	if err != nil || failed.applied == nil || failed.applied.sameConfig(tried) || ctx.Err() != nil {
		return cause
	}
	s.warn("the new configuration did not work; going back to the one before")
	back, err := s.lastHealthy(ctx)
	if err == nil {
		_, err = s.converge(ctx, back, &steps{agent: s.Agent})
	}
	if err == nil {
		err = s.commit(ctx, back)
	}
	if err != nil {
		return fmt.Errorf("%w\nand cannot go back to the previous configuration: %w", cause, err)
	}
	s.show(progress.Event{Kind: progress.Note, Text: "the previous configuration is back and the Node is Ready"})
	return cause
}

// joinState is what join-state.json shall say.
func (g *goal) joinState(joined bool) JoinState {
	return JoinState{
		NodeName: g.config.Agent.NodeName,
		Server:   g.facts.Server,
		CASHA256: digest([]byte(g.facts.CA)),
		Joined:   joined || g.facts.Joined,
	}
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
