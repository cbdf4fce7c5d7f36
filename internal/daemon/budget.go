package daemon

import (
	"slices"
	"time"
)

// Budget bounds how often one thing is repaired in a time: what comes back more often has somebody
// who changes it, and restarting services against him harms the node.
type Budget struct {
	Most   int
	Within time.Duration
	// Done holds when each thing was repaired. Save, if set, keeps it for the next process.
	Done map[string][]time.Time
	Save func(map[string][]time.Time)

	// reported are the things whose exhaustion has been said already.
	reported map[string]bool
}

// Take divides things into those that may be repaired now, which counts as done, and those whose
// budget is exhausted and of which that was not said before.
func (b *Budget) Take(things []string) (allowed, refused []string) {
	b.forget()
	for _, thing := range things {
		if len(b.Done[thing]) < b.Most {
			b.Done[thing] = append(b.Done[thing], time.Now())
			allowed = append(allowed, thing)
			continue
		}
		if !b.reported[thing] {
			b.reported[thing] = true
			refused = append(refused, thing)
		}
	}
	if len(allowed) > 0 && b.Save != nil {
		b.Save(b.Done)
	}
	return allowed, refused
}

// Return gives back what was taken for things that were not repaired after all.
func (b *Budget) Return(things []string) {
	for _, thing := range things {
		if n := len(b.Done[thing]); n > 0 {
			b.Done[thing] = b.Done[thing][:n-1]
		}
	}
	b.forget()
	if b.Save != nil {
		b.Save(b.Done)
	}
}

// Exhausted lists the things that are not repaired for now, sorted.
func (b *Budget) Exhausted() []string {
	b.forget()
	var things []string
	for thing, times := range b.Done {
		if len(times) >= b.Most {
			things = append(things, thing)
		}
	}
	slices.Sort(things)
	return things
}

// forget drops what is long ago.
func (b *Budget) forget() {
	if b.Done == nil {
		b.Done = make(map[string][]time.Time)
	}
	if b.reported == nil {
		b.reported = make(map[string]bool)
	}
	for thing, times := range b.Done {
		times = slices.DeleteFunc(times, func(t time.Time) bool {
			age := time.Since(t) // negative when the clock was set back
			return age < 0 || age >= b.Within
		})
		b.Done[thing] = times
		if len(times) == 0 {
			delete(b.Done, thing)
		}
		if len(times) < b.Most {
			delete(b.reported, thing)
		}
	}
}
