package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Process is a live process of the provider, in any role. The features of a process are the members
// of its row: a release with rows that the previous one cannot read adds a member.
type Process struct {
	Role    string `json:"role"`
	Version string `json:"version"`
	// Keys holds the ids of the keys that it has read; the first one seals.
	Keys []string `json:"keys,omitempty"`
	// Clock is its time when it wrote the row, every clockInterval.
	Clock time.Time `json:"clock"`
}

// clockInterval is the time between two writes of a process's clock.
const clockInterval = time.Minute

// Lacking returns the names of the live processes for which has is false, with role and version.
// A feature is enabled once no process lacks it. It is an error if no process has a row: one that
// has started while the store was full runs without.
func (s *Store) Lacking(ctx context.Context, has func(Process) bool) (names []string, err error) {
	rows, _, err := s.Processes.List(ctx, "")
	if err == nil && len(rows) == 0 {
		err = errors.New("no process of the provider has a row in the store: start the provider, and " +
			"free space in the store if that is full")
	}
	for _, row := range rows {
		if p := row.Value; !has(p) {
			names = append(names, fmt.Sprintf("%s (%s, %s)", row.Key, p.Role, p.Version))
		}
	}
	return names, err
}

// Presence keeps the row of this process.
type Presence struct {
	Store   *Store
	Name    string
	Process Process
	Now     func() time.Time
	Say     func(error)

	lead  atomic.Int64
	roles atomic.Pointer[map[string]int]
}

// Run keeps the row until ctx ends, and then deletes it.
func (p *Presence) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.hold(ctx); err != nil && ctx.Err() == nil {
			p.Say(fmt.Errorf("cannot tell the other processes of this one: %w", err))
			Pause(ctx, Jitter(memberPause))
		}
	}
}

// hold keeps the row under one lease, until that ends. A row that cannot be written again stays
// with its old clock: others must see that this process lives, also while the store is full.
func (p *Presence) hold(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, memberPatience)
	lease, err := p.Store.Lease(within, MemberTTL)
	cancel()
	if err != nil {
		return err
	}
	defer func() { _ = lease.Close() }() // it ends by itself otherwise
	tick := time.NewTicker(clockInterval)
	defer tick.Stop()
	for err = p.write(ctx, lease); err == nil; {
		select {
		case <-ctx.Done():
			return nil
		case <-lease.Done():
			return nil
		case <-tick.C:
		}
		if err := p.write(ctx, lease); err != nil && ctx.Err() == nil {
			p.Say(fmt.Errorf("cannot tell the clock of this process: %w", err))
		}
	}
	return err
}

// write writes the row, compares this clock with the others', and counts the processes.
func (p *Presence) write(ctx context.Context, lease Lease) error {
	ctx, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	p.Process.Clock = p.Now().UTC()
	_, err := p.Store.Update(ctx, "process noted", nil, func(v *View) error {
		return p.Store.Processes.Lease(v, p.Name, p.Process, lease)
	})
	if err != nil {
		return err
	}
	rows, _, err := p.Store.Processes.List(ctx, "")
	if err != nil {
		return err
	}
	lead, roles := time.Duration(0), map[string]int{}
	for _, row := range rows {
		roles[row.Value.Role]++
		lead = max(lead, p.Process.Clock.Sub(row.Value.Clock)-2*clockInterval)
	}
	p.lead.Store(int64(lead))
	p.roles.Store(&roles)
	return nil
}

// Live returns the number of live processes with a role, at most a minute old.
func (p *Presence) Live(role string) int {
	if roles := p.roles.Load(); roles != nil {
		return (*roles)[role]
	}
	return 0
}

// Lead returns the time by which this clock is ahead of another live process's, beyond the usual
// age of a row. For up to a minute after the store was full, it includes how long it was.
func (p *Presence) Lead() time.Duration { return time.Duration(p.lead.Load()) }
