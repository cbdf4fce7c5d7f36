package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// arcFile is the record of what was done in Azure Arc.
const arcFile = "arc.json"

// rolesTimeout is how long role assignments may take to have an effect.
const rolesTimeout = 30 * time.Minute

// arc puts together the conversation with Azure Arc.
func (s *session) arc(c config.Config, say func(string, ...any)) arc.Arc {
	a := arc.Arc{
		Config: c.Azure, Machine: s.Machine, Options: identity.ARM(c.Azure, c.ProxyFunc()), Say: say, Poll: s.Poll,
		Save: func(r arc.Record) error { return s.records.save(context.Background(), arcFile, r) },
	}
	return a
}

// enrol makes the machine an Arc machine whose identity is authorised in the cluster. Downloads go on meanwhile. A machine that is
// enrolled as configured is not asked about again.
func (s *session) enrol(ctx context.Context, g *goal, view *steps) error {
	c := g.config
	if c.Azure.AuthMode() != config.AuthArc {
		return nil
	}
	var record arc.Record
	known, err := s.records.load(arcFile, &record)
	if err != nil {
		return err
	}
	if known && g.applied != nil {
		if before, err := g.applied.parse(); err == nil && reflect.DeepEqual(before.Azure.Arc, c.Azure.Arc) {
			s.enrolled = true
			return nil
		}
	}
	view.advance(state.Arc)
	a := s.arc(c, func(format string, args ...any) { view.doing(fmt.Sprintf(format, args...)) })
	if a.Credential, err = identity.Manager(c.Azure, c.ProxyFunc()); err != nil {
		return err
	}
	_, newest, err := a.Enrol(ctx, record)
	if err == nil {
		err = s.waitAuthorised(ctx, g, view, newest)
	}
	if err != nil {
		view.fail()
		return err
	}
	s.enrolled = true
	view.finish(c.Azure.Arc.MachineName + " is connected and authorised")
	return nil
}

// waitAuthorised waits until the cluster lets the Arc identity do what kubelet must. The machine's metadata service keeps tokens: one
// from before the newest role assignment is thrown away, once, by restarting it.
func (s *session) waitAuthorised(ctx context.Context, g *goal, view *steps, newest time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, rolesTimeout)
	defer cancel()
	pause, restarted := s.Poll, false
	if pause == 0 {
		pause = 2 * time.Second
	}
	for began := s.now(); ; pause = min(pause*3/2, 15*time.Second) {
		token, err := s.kubeletToken(ctx, g.config)
		if err != nil {
			return err
		}
		if !restarted && issued(token).Before(newest.Truncate(time.Second)) { // tokens have whole seconds
			restarted = true
			view.doing("restarting the Arc agent's metadata service, whose token is older than the role assignment")
			if err := s.Machine.RestartUnit(ctx, "himdsd.service"); err != nil {
				return err
			}
			continue
		}
		ok, err := s.authorised(ctx, g.config, token)
		if err != nil || ok {
			return err
		}
		view.doing(fmt.Sprintf("waiting for the role assignments to have an effect (%s)", s.now().Sub(began).Truncate(time.Second)))
		if !sleep(ctx, pause) {
			_, role := needed(g.config)
			return fmt.Errorf("cannot use the identity of the Arc machine: the cluster did not authorise it within %s; it needs %s", s.now().Sub(began).Truncate(time.Second), role)
		}
	}
}

// leaveArc takes back what was done in Azure Arc. What somebody else had done before stays.
func (s *session) leaveArc(ctx context.Context, c *config.Config, how Leave) error {
	var record arc.Record
	ok, err := s.records.load(arcFile, &record)
	if err != nil || !ok || how.KeepArc || !record.Connected && len(record.Assignments) == 0 {
		return err
	}
	if c == nil {
		return errors.New("cannot leave Azure Arc: no configuration says as whom; give it with --config, or leave the machine there with --keep-arc")
	}
	a := s.arc(*c, func(format string, args ...any) {
		s.show(progress.Event{Kind: progress.Note, Text: fmt.Sprintf(format, args...)})
	})
	if a.Credential, err = identity.Manager(c.Azure, c.ProxyFunc()); err == nil {
		err = a.Leave(ctx, record)
	}
	if err != nil {
		return fmt.Errorf("%w\nrun unbootstrap again when that is mended, or leave the machine in Azure Arc with --keep-arc", err)
	}
	return nil
}
