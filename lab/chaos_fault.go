package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// harm injects one fault after another into replicas and members, and undoes each.
func (c *chaosRun) harm(ctx context.Context, dirs programs) error {
	r := c.random(1000)
	kinds := []func(context.Context, *rand.Rand) error{
		c.pauseReplica, c.pauseMember, c.pauseQuorum, c.killReplica,
		func(ctx context.Context, r *rand.Rand) error { return c.killMember(ctx, r, dirs) },
		c.partReplica, c.partLink, c.partMember, c.split, c.stallDisk, c.endLease,
		func(ctx context.Context, r *rand.Rand) error { return c.replaceMember(ctx, r, dirs) },
	}
	for rest(ctx, r, time.Second, 4*time.Second) {
		c.faults++
		// undo a fault even if the time is over meanwhile
		if err := kinds[r.IntN(len(kinds))](context.WithoutCancel(ctx), r); err != nil {
			return err
		}
	}
	return nil
}

// lasting returns the duration of a fault, now and then longer than a replica's leases.
func lasting(r *rand.Rand) time.Duration {
	if r.IntN(5) == 0 {
		return 12 * time.Second
	}
	return time.Duration(500+r.IntN(4000)) * time.Millisecond
}

func (c *chaosRun) pauseReplica(_ context.Context, r *rand.Rand) error {
	return c.lab.pause(lasting(r), replicaName(r.IntN(c.lab.Replicas)))
}

func (c *chaosRun) pauseMember(_ context.Context, r *rand.Rand) error {
	return c.lab.pause(lasting(r), memberName(r.IntN(c.lab.Members)))
}

// pauseQuorum pauses enough members that the others have no quorum.
func (c *chaosRun) pauseQuorum(_ context.Context, r *rand.Rand) error {
	first := r.IntN(c.lab.Members)
	return c.lab.pause(lasting(r), memberName(first), memberName((first+1)%c.lab.Members))
}

func (c *chaosRun) killReplica(ctx context.Context, r *rand.Rand) error {
	i := r.IntN(c.lab.Replicas)
	if err := c.lab.killHard(replicaName(i)); err != nil {
		return err
	}
	return c.lab.StartReplica(ctx, i)
}

func (c *chaosRun) killMember(_ context.Context, r *rand.Rand, dirs programs) error {
	i := r.IntN(c.lab.Members)
	if err := c.lab.killHard(memberName(i)); err != nil {
		return err
	}
	time.Sleep(time.Second)
	return c.lab.startMember(dirs, i)
}

// partReplica partitions a replica from the whole store.
func (c *chaosRun) partReplica(ctx context.Context, r *rand.Rand) error {
	from := replicaName(r.IntN(c.lab.Replicas))
	var links []string
	for m := range c.lab.Members {
		links = append(links, linkName(from, memberName(m)))
	}
	return c.part(ctx, r, links)
}

// partLink partitions a replica from one member.
func (c *chaosRun) partLink(ctx context.Context, r *rand.Rand) error {
	return c.part(ctx, r, []string{
		linkName(replicaName(r.IntN(c.lab.Replicas)), memberName(r.IntN(c.lab.Members))),
	})
}

// partMember partitions a member from the other members; replicas still reach it.
func (c *chaosRun) partMember(ctx context.Context, r *rand.Rand) error {
	return c.part(ctx, r, c.around(r.IntN(c.lab.Members)))
}

// around returns the links between a member and the others, in both directions.
func (c *chaosRun) around(member int) []string {
	var links []string
	for m := range c.lab.Members {
		if m != member {
			links = append(links, linkName(memberName(m), memberName(member)),
				linkName(memberName(member), memberName(m)))
		}
	}
	return links
}

// split partitions a member and the replica with its number from all others.
func (c *chaosRun) split(ctx context.Context, r *rand.Rand) error {
	alone := r.IntN(c.lab.Members)
	links := c.around(alone)
	for i := range c.lab.Replicas {
		for m := range c.lab.Members {
			if (i == alone) != (m == alone) {
				links = append(links, linkName(replicaName(i), memberName(m)))
			}
		}
	}
	return c.part(ctx, r, links)
}

// part stalls or cuts links for a while.
func (c *chaosRun) part(ctx context.Context, r *rand.Rand, links []string) error {
	states := LinkStates{Stalled: links, Members: c.members}
	if r.IntN(3) == 0 {
		states = LinkStates{Cut: links, Members: c.members}
	}
	if err := c.lab.SetLinks(ctx, states); err != nil {
		return err
	}
	time.Sleep(lasting(r))
	return c.lab.SetLinks(ctx, LinkStates{Members: c.members})
}

func (l *Lab) pause(during time.Duration, names ...string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, l.signal(name, syscall.SIGSTOP))
	}
	time.Sleep(during)
	for _, name := range names {
		errs = append(errs, l.signal(name, syscall.SIGCONT))
	}
	return errors.Join(errs...)
}

// signal sends a signal to a process of the lab.
func (l *Lab) signal(name string, s syscall.Signal) error {
	pid := l.ProcessID(name)
	if pid == 0 {
		return fmt.Errorf("%s does not run any more (see %s)", name, l.path("logs", name+".log"))
	}
	if err := syscall.Kill(pid, s); err != nil {
		return fmt.Errorf("cannot send %s to %s: %w", s, name, err)
	}
	return nil
}

func (l *Lab) killHard(name string) error {
	if err := l.signal(name, syscall.SIGKILL); err != nil {
		return err
	}
	for l.ProcessID(name) != 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}
