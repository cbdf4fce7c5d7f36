package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// View holds what a change has read and what it writes. What was read becomes the change's
// conditions. A row that was written reads as it was written.
type View struct {
	ctx    context.Context
	store  *Store
	read   map[string]KV
	writes map[string]Write
	order  []string // of writes
	fences []Condition
	broken bool // the store could not be read
	failed error
}

// attempts limits how often a change is decided again because rows have changed meanwhile.
const attempts = 20

// Update makes a change of rows: decide reads them and writes them within a view, and all of it is
// written together, if nothing that was read has changed meanwhile. Else decide is called again,
// after a pause, so it must have no other effects than on the view. ahead are keys that are read
// together at first (Table.Key). what names the change for Store.Did. It returns the revision of
// the change, 0 if decide has written nothing; an error of decide ends it. ErrConflict: others kept
// changing the rows. ErrFenced: a fence does not hold, nothing was written. After other errors it
// may be open whether it was written.
func (s *Store) Update(
	ctx context.Context, what string, ahead []string, decide func(*View) error,
) (int64, error) {
	for attempt := range attempts {
		pause := time.Duration(1+rand.IntN(1<<min(attempt, 7))) * time.Millisecond
		if attempt > 0 && !Pause(ctx, pause) {
			return 0, ctx.Err()
		}
		revision, err := s.try(ctx, ahead, decide)
		if errors.Is(err, errAgain) {
			continue
		}
		if err == nil && revision != 0 && s.Did != nil {
			s.Did(what)
		}
		return revision, err
	}
	return 0, ErrConflict
}

func (s *Store) try(ctx context.Context, ahead []string, decide func(*View) error) (int64, error) {
	v := &View{ctx: ctx, store: s, read: map[string]KV{}, writes: map[string]Write{}}
	if err := v.Ahead(ahead...); err != nil {
		return 0, err
	}
	if err := v.outcome(decide(v)); err != nil {
		return 0, err
	}
	return v.commit()
}

// Fail has the change fail with an error, whatever is decided, and does nothing without one: for
// what cannot be read or written, so that those who decide need not ask after each row. The first
// error counts.
func (v *View) Fail(err error) {
	if v.failed == nil {
		v.failed = err
	}
}

// outcome is the error of a change that was decided with one, nil if it may be written.
func (v *View) outcome(err error) error {
	if v.failed != nil {
		return v.failed
	}
	return err
}

// commit writes what a change writes, if what was read is as it was.
func (v *View) commit() (int64, error) {
	if len(v.writes) == 0 {
		return 0, nil
	}
	if err := v.refusal(); err != nil {
		return 0, fmt.Errorf("cannot write to the store: %w", err)
	}
	conditions := slices.Clone(v.fences)
	for key, kv := range v.read {
		conditions = append(conditions, Condition{Key: key, Revision: kv.Revision})
	}
	writes := make([]Write, 0, len(v.order))
	for _, key := range v.order {
		writes = append(writes, v.writes[key])
	}
	revision, err := v.store.Commit(v.ctx, conditions, writes)
	switch {
	case errors.Is(err, ErrConflict):
		return 0, v.conflict()
	case err != nil:
		return 0, fmt.Errorf("cannot write to the store: %w", err)
	}
	return revision, nil
}

// ErrFenced is a change whose fence does not hold (View.Fence): it was not written, and would not
// be if it were decided again.
var ErrFenced = errors.New("this replica may not make the change any more")

// errAgain is a change that is to be decided again.
var errAgain = errors.New("internal error: to be decided again")

// conflict is ErrFenced if a fence is why the change was not written, else errAgain.
func (v *View) conflict() error {
	if len(v.fences) == 0 {
		return errAgain
	}
	keys := make([]string, 0, len(v.fences))
	for _, f := range v.fences {
		keys = append(keys, f.Key)
	}
	got, _, err := v.store.Read(v.ctx, keys...)
	if err != nil {
		return fmt.Errorf("cannot read from the store: %w", err)
	}
	for _, f := range v.fences {
		if got[f.Key].Revision != f.Revision {
			return ErrFenced
		}
	}
	return errAgain
}

// Ahead reads keys together, those that have not been read yet.
func (v *View) Ahead(keys ...string) error {
	if v.failed != nil {
		return v.failed
	}
	var missing []string
	for _, key := range keys {
		if _, known := v.read[key]; !known {
			missing = append(missing, key)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	got, _, err := v.store.Read(v.ctx, missing...)
	if err != nil {
		v.broken = true
		return fmt.Errorf("cannot read from the store: %w", err)
	}
	for _, key := range missing {
		v.read[key] = got[key] // revision 0 is absent
	}
	return nil
}

// Context is that of the change.
func (v *View) Context() context.Context { return v.ctx }

// Fence has the change depend on something that was read before it, such as being the owner of a
// cluster: unlike what was read within the view, it is not read again.
func (v *View) Fence(c Condition) {
	if !slices.Contains(v.fences, c) {
		v.fences = append(v.fences, c)
	}
}

// get returns what a key is, within the view.
func (v *View) get(key string) (KV, error) {
	if w, written := v.writes[key]; written {
		if w.Delete {
			return KV{Key: key}, nil
		}
		return KV{Key: key, Value: w.Value, Revision: uncommitted}, nil
	}
	if err := v.Ahead(key); err != nil {
		return KV{}, err
	}
	return v.read[key], nil
}

// uncommitted is the revision of a row that is not committed yet: it exists.
const uncommitted = -1

func (v *View) write(w Write) {
	if _, again := v.writes[w.Key]; !again {
		v.order = append(v.order, w.Key)
	}
	v.writes[w.Key] = w
}

// Each is one change of rows for each of many keys (UpdateEach).
type Each struct {
	// What names each transaction for Store.Did.
	What string
	// Ahead are the keys that are read together for a key; it may be nil.
	Ahead func(key string) []string
	// One decides for a key, as the function of Update does.
	One func(v *View, key string) error
	// Together is the number of transactions at a time, in which case One is for concurrent use; 0
	// is one after the other.
	Together int
}

// UpdateEach makes a change for each key, in their order and each in a transaction of its own. A
// key whose change fails by itself, or is too large, keeps no other from its change; the error has
// all of them. It ends when the store cannot be read or written, or a fence does not hold. done is
// how many changes were made.
func (s *Store) UpdateEach(ctx context.Context, keys []string, e Each) (done int, err error) {
	var mu sync.Mutex
	var errs []error
	group, ended := errgroup.WithContext(ctx)
	group.SetLimit(max(1, e.Together))
	for _, key := range keys {
		group.Go(func() error {
			if ended.Err() != nil {
				return nil
			}
			own, err := s.updateOne(ctx, key, e)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				done++
				return nil
			}
			errs = append(errs, err)
			if own {
				return nil
			}
			return err // which ends the rest
		})
	}
	_ = group.Wait() // the errors are in errs
	return done, errors.Join(errs...)
}

// updateOne makes the change for a key; own tells that an error is of this key alone.
func (s *Store) updateOne(ctx context.Context, key string, e Each) (own bool, err error) {
	var ahead []string
	if e.Ahead != nil {
		ahead = e.Ahead(key)
	}
	_, err = s.Update(ctx, e.What, ahead, func(v *View) error {
		err := v.outcome(e.One(v, key))
		own = err != nil && !v.broken
		return err
	})
	if errors.Is(err, ErrTooLarge) {
		return true, fmt.Errorf("cannot change %s: %w", key, err)
	}
	return own && ctx.Err() == nil, err
}
