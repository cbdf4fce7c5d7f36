package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// View holds the reads and writes of a change. The reads become the change's conditions. A row that
// was written reads as it was written.
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

// attempts limits how often a change is decided again because rows have changed.
const attempts = 20

// Update changes rows: decide reads and writes them within a view, and its writes are committed
// together, if none of the rows it read has changed. Otherwise decide is called again, after a
// pause, so it must have no effects but on the view. The rows with the keys ahead are read together
// first (Table.Key). what names the change for Store.Did. Update returns the revision of the
// change, 0 if decide has written nothing; an error of decide ends it. ErrConflict: the rows kept
// changing. ErrFenced: a fence does not hold, nothing was written. After other errors it is unknown
// whether the change was written.
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
		if err == nil && revision != 0 {
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
	v.Fail(decide(v)) // an error that it has noted comes first
	if v.failed != nil {
		return 0, v.failed
	}
	return v.commit()
}

// Fail makes the change fail with an error, whatever decide returns; nil is a no-op. It is for rows
// that cannot be read or written, so that decide need not check each of them. The first error
// counts.
func (v *View) Fail(err error) { v.failed = cmp.Or(v.failed, err) }

// commit writes the change, if the rows it read are unchanged.
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

// ErrFenced is returned if a fence of a change does not hold (View.Fence): it was not written, and
// another attempt would fail, too.
var ErrFenced = errors.New("this replica may not make the change any more")

// errAgain is returned for a change that must be decided again.
var errAgain = errors.New("internal error: to be decided again")

// conflict returns ErrFenced if a fence is the reason that the change was not written, else
// errAgain.
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

// Ahead reads the keys that were not read yet, together.
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

// Context returns the context of the change.
func (v *View) Context() context.Context { return v.ctx }

// Fence makes the change depend on something that was read before it, such as the ownership of a
// cluster: unlike the reads of the view, it is not read again.
func (v *View) Fence(c Condition) {
	if !slices.Contains(v.fences, c) {
		v.fences = append(v.fences, c)
	}
}

func (v *View) get(key string) (KV, error) {
	if w, written := v.writes[key]; written {
		if w.Delete {
			return KV{Key: key}, nil
		}
		return KV{Key: key, Value: w.Value, Revision: uncommitted}, nil
	}
	err := v.Ahead(key)
	return v.read[key], err
}

// uncommitted is the revision of a row that is not committed yet, but exists.
const uncommitted = -1

func (v *View) write(w Write) {
	if _, again := v.writes[w.Key]; !again {
		v.order = append(v.order, w.Key)
	}
	v.writes[w.Key] = w
}

// Each describes a change for each of many keys (UpdateEach).
type Each struct {
	// What names each transaction for Store.Did.
	What string
	// Ahead returns the keys that are read together for a key; it may be nil.
	Ahead func(key string) []string
	// One decides for a key, like the function of Update.
	One func(v *View, key string) error
	// Together is the number of concurrent transactions, for which One must be safe; 0 is one after
	// the other.
	Together int
}

// UpdateEach makes a change for each key, in order and each in a transaction of its own. A key
// whose change fails by itself, panics, or is too large does not stop the others; the error has all
// of them. It ends when the store cannot be read or written, or a fence does not hold. last is the
// highest revision of a change; 0 for none.
func (s *Store) UpdateEach(ctx context.Context, keys []string, e Each) (last int64, err error) {
	var mu sync.Mutex
	var errs []error
	group, ended := errgroup.WithContext(ctx)
	group.SetLimit(max(1, e.Together))
	for _, key := range keys {
		group.Go(func() error {
			if ended.Err() != nil {
				return nil
			}
			revision, own, err := s.updateOne(ctx, key, e)
			if own && errors.Is(err, ErrCrash) {
				err = fmt.Errorf("%w %s: %w", ErrRow, key, err)
			}
			mu.Lock()
			defer mu.Unlock()
			last, errs = max(last, revision), append(errs, err)
			if own {
				return nil
			}
			return err // which ends the rest
		})
	}
	_ = group.Wait() // the errors are in errs
	return last, errors.Join(errs...)
}

// ErrCrash is the error for a recovered panic, ErrRow for one in the change of a single key.
var ErrCrash, ErrRow = errors.New("internal error: panic"), errors.New("internal error: change of")

// Crashed returns the error for what recover has returned.
func Crashed(reason any) error { return fmt.Errorf("%w: %v\n%s", ErrCrash, reason, debug.Stack()) }

// Caught recovers a panic and makes it an error. It must be deferred.
func Caught(err *error) {
	if r := recover(); r != nil {
		*err = Crashed(r)
	}
}

// updateOne makes the change for a key; own reports that an error is of this key alone.
func (s *Store) updateOne(ctx context.Context, key string, e Each) (at int64, own bool, err error) {
	defer Caught(&err)
	var ahead []string
	if e.Ahead != nil {
		ahead = e.Ahead(key)
	}
	at, err = s.Update(ctx, e.What, ahead, func(v *View) error {
		own = true // if it panics
		v.Fail(e.One(v, key))
		own = v.failed != nil && !v.broken
		return v.failed
	})
	if errors.Is(err, ErrTooLarge) {
		return 0, true, fmt.Errorf("cannot change %s: %w", key, err)
	}
	return at, own && ctx.Err() == nil, err
}
