package daemon

import (
	"maps"
	"slices"
	"time"
)

// Budget limits the repairs of one thing, so as not to fight another process that changes it.
type Budget struct {
	Most   int
	Within time.Duration
	Done   map[string][]time.Time       // the times of each thing's repairs
	Save   func(map[string][]time.Time) // stores Done for the next process

	reported []string // the exhausted things that Take has returned
}

// Take returns the things that may be repaired now, and those newly exhausted.
func (b *Budget) Take(things []string) (allowed, refused []string) {
	b.forget()
	for _, thing := range things {
		switch {
		case len(b.Done[thing]) < b.Most:
			b.Done[thing] = append(b.Done[thing], time.Now())
			allowed = append(allowed, thing)
			b.reported = slices.DeleteFunc(b.reported, func(r string) bool { return r == thing })
		case !slices.Contains(b.reported, thing):
			b.reported = append(b.reported, thing)
			refused = append(refused, thing)
		}
	}
	if len(allowed) > 0 {
		b.Save(b.Done)
	}
	return allowed, refused
}

// Return refunds the repairs of things that were not repaired after all.
func (b *Budget) Return(things []string) {
	for _, thing := range things {
		if n := len(b.Done[thing]); n > 0 {
			b.Done[thing] = b.Done[thing][:n-1]
		}
	}
	b.Save(b.Done)
}

// Exhausted returns the things that are currently not repaired, sorted.
func (b *Budget) Exhausted() []string {
	b.forget()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(b.Done)), func(thing string) bool {
		return len(b.Done[thing]) < b.Most
	})
}

func (b *Budget) forget() {
	before := b.Done
	b.Done = make(map[string][]time.Time, len(before))
	for thing, times := range before {
		times = slices.DeleteFunc(times, func(t time.Time) bool {
			age := time.Since(t) // negative if the clock was set back
			return age < 0 || age >= b.Within
		})
		if len(times) > 0 {
			b.Done[thing] = times
		}
	}
}
