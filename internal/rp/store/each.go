package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
)

// Each is one change of rows for each of many keys (UpdateEach).
type Each struct {
	// What names each transaction for Store.Did.
	What string
	// Ahead are the keys that are read together for a key; it may be nil.
	Ahead func(key string) []string
	// One decides for a key, as the function of Update does. It is called again for a key if the
	// transaction has no room for it.
	One func(v *View, key string) error
}

// UpdateEach makes a change for each key, in their order, as many together in one transaction as
// fit into it by their number of conditions and writes and by their size. A key whose change fails
// by itself, or is too large even alone, is left out and keeps no other from its change; the error
// tells of all of them. It ends when the store cannot be read or written, or a fence does not hold.
// done is how many changes were made.
func (s *Store) UpdateEach(ctx context.Context, keys []string, e Each) (done int, err error) {
	var errs []error
	most, conflicts := MaxWrites, 0
	for len(keys) > 0 && ctx.Err() == nil {
		r, err := s.some(ctx, keys[:min(len(keys), most)], e)
		switch {
		case errors.Is(err, errAgain):
			if conflicts++; conflicts >= attempts {
				return done, errors.Join(append(errs, ErrConflict)...)
			}
			Pause(ctx, time.Duration(1+rand.IntN(1<<min(conflicts, 7)))*time.Millisecond)
			continue
		case errors.Is(err, ErrTooLarge) && r.made > 1:
			most = r.made / 2
			continue
		case errors.Is(err, ErrTooLarge):
			r.made, r.failed = 0, fmt.Errorf("cannot change %s: %w", keys[0], err)
		case err != nil:
			return done, errors.Join(append(errs, err)...)
		}
		conflicts, most = 0, min(2*most, MaxWrites) // what was too large is behind
		done += r.made
		keys = keys[r.made:]
		if r.failed != nil {
			errs, keys = append(errs, r.failed), keys[1:]
		}
	}
	return done, errors.Join(append(errs, ctx.Err())...)
}

// round holds the changes of one transaction, those of that many keys. failed is the reason why the
// next one's cannot be made.
type round struct {
	made   int
	failed error
}

// some makes the changes of as many of the first keys as fit into one transaction.
func (s *Store) some(ctx context.Context, keys []string, e Each) (round, error) {
	v := &View{ctx: ctx, store: s, read: map[string]KV{}, known: map[string]bool{},
		writes: map[string]Write{}}
	if err := v.prefetch(keys, e.Ahead); err != nil {
		return round{}, err
	}
	var r round
	for _, key := range keys {
		before := v.mark()
		err := v.outcome(e.One(v, key))
		if v.broken || ctx.Err() != nil {
			return r, errors.Join(err, ctx.Err())
		}
		if err != nil {
			v.rewind(before)
			r.failed = err
			break
		}
		if r.made > 0 && !v.fits() {
			v.rewind(before)
			break
		}
		r.made++
	}
	revision, err := v.commit(r.made)
	if err == nil && revision != 0 && s.Did != nil {
		s.Did(e.What)
	}
	return r, err
}

// prefetch reads together what changes are likely to read.
func (v *View) prefetch(keys []string, ahead func(key string) []string) error {
	if ahead == nil {
		return nil
	}
	var all []string
	for _, key := range keys {
		all = append(all, ahead(key)...)
	}
	got, _, err := v.store.Read(v.ctx, all...)
	if err != nil {
		return fmt.Errorf("cannot read from the store: %w", err)
	}
	v.ahead = map[string]KV{}
	for _, key := range all {
		v.ahead[key] = got[key] // revision 0 is absent
	}
	return nil
}

// mark returns the present state of a view, to go back to.
func (v *View) mark() View {
	before := *v
	before.read, before.writes = maps.Clone(v.read), maps.Clone(v.writes)
	before.order, before.fences = slices.Clone(v.order), slices.Clone(v.fences)
	return before
}

// rewind takes back what a view has read and written since.
func (v *View) rewind(before View) {
	for key, kv := range v.read {
		if _, known := before.read[key]; !known && v.ahead != nil {
			v.ahead[key] = kv
		}
	}
	v.read, v.writes, v.order, v.fences = before.read, before.writes, before.order, before.fences
	v.failed = nil
}

// fits reports whether one transaction takes what a view has read and written.
func (v *View) fits() bool {
	size := 0
	for _, w := range v.writes {
		size += len(w.Key) + len(w.Value)
	}
	conditions := len(v.read) + len(v.fences)
	if v.store.schema.Load() != nil {
		conditions++
	}
	return conditions <= MaxWrites && len(v.writes) <= MaxWrites && size <= kv.MaxBytes
}
