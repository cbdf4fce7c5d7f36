package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Leave says how a machine stops being a node.
type Leave struct {
	// Force goes on without a ledger: only what still is as we made it is removed.
	Force bool
	// KeepArc leaves the machine registered with Azure Arc.
	KeepArc bool
	// DrainTimeout bounds the wait for pods to go elsewhere; 0 does not drain.
	DrainTimeout time.Duration
}

// Unbootstrap gives the machine back as it was: its pods move elsewhere if they can, the Node object is deleted, what the ledger
// remembers is restored, and then the agent's own state goes. The error lists all that could not be undone; what is in
// it stays in the ledger, so that running again finishes the work.
func (a *Agent) Unbootstrap(ctx context.Context, c *config.Config, how Leave) (Result, error) {
	began := a.now()
	s, err := a.openToLeave(c, how)
	if err != nil {
		return Result{}, err
	}
	defer s.close()
	result := Result{}
	if c = s.leaver(c); c != nil {
		result.NodeName = c.Agent.NodeName
	}
	if !s.engine.Journal.Exists() {
		s.show(progress.Event{Kind: progress.Note, Text: "this machine is not a node; nothing to undo"})
		if err := s.leaveArc(ctx, c, how); err != nil {
			return result, err
		}
		return result, s.erase(ctx)
	}
	view := &steps{agent: a}
	s.engine.Emit = view.emit
	cluster := s.member(c)
	if cluster != nil {
		defer cluster.Close()
		s.drain(ctx, cluster, result.NodeName, how.DrainTimeout)
	}
	err = s.stopDaemon(ctx)
	var stays error
	if cluster != nil { // while there is a credential: a run that is killed later can no longer do it
		stays = s.deleteNode(ctx, cluster, result.NodeName)
	}
	arcStays := s.leaveArc(ctx, c, how)
	err = errors.Join(err, s.engine.Revert(ctx))
	result.Changes = view.total
	switch {
	case err != nil:
	case arcStays != nil: // the records of it stay too, for the next run; what is left is no node
		view.end()
		err = s.records.remove(ctx, joinFile)
	default:
		view.end()
		err = s.erase(ctx)
	}
	err = errors.Join(err, stays, arcStays)
	result.Took = a.now().Sub(began)
	result.Seconds = result.Took.Seconds()
	return result, err
}

// openToLeave opens the ledger. One that is lost or damaged stops here, unless forced.
func (a *Agent) openToLeave(c *config.Config, how Leave) (*session, error) {
	s, err := a.open("unbootstrap")
	unknown := errors.Is(err, ErrLedgerLost) || errors.Is(err, apply.ErrDamaged)
	if !unknown {
		return s, err
	}
	if !how.Force {
		return nil, fmt.Errorf("%w; with --force what still is as aks-flex-node made it is removed, and the rest is left", err)
	}
	return a.openForced(c)
}

// leaver returns the configuration of the node that this machine is: the one that was applied, else what was begun, else what
// the user gave.
func (s *session) leaver(given *config.Config) *config.Config {
	for _, name := range []string{appliedFile, currentFile} {
		if _, c, ok, err := s.records.generation(name); err == nil && ok {
			return &c
		}
	}
	return given
}

// member returns a client with kubelet's credential; nil when there is none, as before the first join.
func (s *session) member(c *config.Config) *kube.Client {
	if c == nil || !s.credentialed(*c) {
		return nil
	}
	cluster, err := s.kubelet(*c)
	if err != nil {
		s.warn("%v", err)
		return nil
	}
	return cluster
}

// drain moves the pods elsewhere. That it does not succeed is no reason to keep the machine.
func (s *session) drain(ctx context.Context, cluster *kube.Client, name string, timeout time.Duration) {
	if timeout == 0 {
		return
	}
	s.show(progress.Event{Kind: progress.Note, Text: "draining Node " + name})
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := cluster.Cordon(ctx, name)
	if err == nil {
		err = cluster.Drain(ctx, name, kube.DrainOptions{DeleteEmptyDir: true, Force: true})
	}
	if err != nil {
		s.warn("pods were not moved away: %v", err)
	}
}

// deleteNode removes the Node object.
func (s *session) deleteNode(ctx context.Context, cluster *kube.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return cluster.DeleteNode(ctx, name)
}

// stopDaemon stops and disables the agent's own service, which else would make this machine a node again.
func (s *session) stopDaemon(ctx context.Context) error {
	is, err := s.Machine.Observe(ctx, state.UnitKey(Service))
	if err != nil {
		return err
	}
	unit := is.(state.Unit)
	if !unit.Active && unit.Enabled != state.Enabled || s.InService {
		return nil
	}
	off := state.Unit{Name: Service, Enabled: state.Disabled}
	s.show(progress.Event{Kind: progress.Note, Text: "stopping and disabling " + Service})
	return s.Machine.Set(ctx, state.Change{From: unit, To: off}, nil)
}

// erase removes the agent's own directories, the last thing to go. What says that there was a node goes first: without it a
// half erased directory is no lost ledger.
func (s *session) erase(ctx context.Context) error {
	if err := s.records.remove(ctx, joinFile); err != nil {
		return err
	}
	var errs []error
	for _, dir := range []string{StateDir, RunDir} {
		is, err := s.Machine.Observe(ctx, state.PathKey(dir))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if _, ok := is.(state.Absent); ok {
			continue
		}
		gone := state.Change{From: is, To: state.Absent{Path: dir}, Undo: true, Ours: state.Dir{Path: dir, Purge: true}}
		errs = append(errs, s.Machine.Set(ctx, gone, nil))
	}
	return errors.Join(append(errs, s.Machine.Flush())...)
}

// openForced builds a ledger from what we would have made: everything that is exactly so is ours and goes; everything else
// stays.
func (a *Agent) openForced(c *config.Config) (*session, error) {
	if c == nil {
		return nil, errors.New("cannot tell what is ours without the configuration: give it with --config")
	}
	l, err := acquire(a.path(RunDir), Holder{Verb: "unbootstrap --force", Since: a.now()})
	if err != nil {
		return nil, err
	}
	s := &session{Agent: a, records: records{host: a.Machine, dir: StateDir}, lock: l}
	s.engine = &apply.Engine{Host: a.Machine, Journal: apply.NewJournal(a.Machine, StateDir), Log: a.Log}
	if err := s.adopt(context.Background(), *c); err != nil {
		l.release()
		return nil, err
	}
	return s, nil
}

// adopt enters into an empty ledger all that is on the machine exactly as we would make it, with its absence as what was before.
func (s *session) adopt(ctx context.Context, c config.Config) error {
	g := &goal{config: c}
	if err := s.facts(ctx, g); err != nil {
		return err
	}
	if generation, _, ok, err := s.records.applied(); err == nil && ok {
		g.facts = generation.Facts
	} else if err := s.resolve(ctx, g); err != nil {
		return err
	}
	g.facts.Joined = true
	want := node.Render(c, g.facts)
	seen, err := s.engine.Observe(ctx, want)
	if err != nil {
		return err
	}
	return s.engine.Journal.Save(ctx, state.Adopt(want, seen))
}
