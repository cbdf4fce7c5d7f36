package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// formerLeaders is below which replicas of the release before have rows while they run.
const formerLeaders = former + "leaders/"

// The rows of Meta that a migration has.
const (
	schemaRow   = "schema"
	lockRow     = "migration-lock"
	progressRow = "migration-progress"
)

// Migration is what it takes to make rows of the release before into ours.
type Migration struct {
	// Defaults is what the operator gives every node, TenantID is that of subscriptions that have
	// not told another: the release before has read both from its settings for each answer.
	Defaults map[string]any
	TenantID string
	// Renderer is the version of this program, Now is the time.
	Renderer string
	Now      time.Time
	// Tell is told how far it is; it may be nil.
	Tell func(what string)
}

// migrationLease is how long a replica that has died keeps others from going on.
const migrationLease = 15 * time.Second

// Migrate makes the rows of the release before into ours, once: one replica does it and the others
// wait. It goes on where one that was killed has stopped. From its beginning on a program of the
// release before refuses to start; those that still run must be stopped before, since what they
// write afterwards is lost: while one of them leads a cluster it refuses to begin. A store that a
// newer program has written is refused, now and later (HoldSchema).
func Migrate(ctx context.Context, s *Store, m Migration) error {
	for {
		done, err := s.migrated(ctx)
		if err != nil {
			return err
		}
		if done {
			return s.HoldSchema(ctx)
		}
		err = s.lockedMigration(ctx, m)
		if err != nil && !errors.Is(err, ErrConflict) {
			return fmt.Errorf("cannot migrate the store: %w", err)
		}
		if err == nil {
			continue
		}
		m.tell("waiting for another replica to migrate the store")
		if Pause(ctx, time.Second); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (m Migration) tell(format string, args ...any) {
	if m.Tell != nil {
		m.Tell(fmt.Sprintf(format, args...))
	}
}

// migrated reports whether there is nothing to do. An empty store becomes one of this version.
func (s *Store) migrated(ctx context.Context) (bool, error) {
	key := s.Meta.Key(schemaRow)
	for {
		got, _, err := s.Read(ctx, key, formerSchema)
		if err != nil {
			return false, fmt.Errorf("cannot read the store's version: %w", err)
		}
		for _, row := range got {
			if _, err := readSchema(row.Value); err != nil {
				return false, err
			}
		}
		switch {
		case got[key].Revision != 0:
			return true, nil
		case got[formerSchema].Revision != 0:
			return false, nil
		}
		_, err = s.Commit(ctx, []Condition{{key, 0}, {formerSchema, 0}}, versionRows(key))
		if !errors.Is(err, ErrConflict) {
			return err == nil, err
		}
	}
}

// versionRows say that the store has this version, the second one to programs of the release
// before: they refuse it.
func versionRows(key string) []Write {
	version := []byte(strconv.Itoa(schema))
	return []Write{{Key: key, Value: version}, {Key: formerSchema, Value: version}}
}

// lockedMigration migrates while no other replica does. ErrConflict is that another one does.
func (s *Store) lockedMigration(ctx context.Context, m Migration) error {
	lease, err := s.Lease(ctx, migrationLease)
	if err != nil {
		return err
	}
	defer lease.Close() // else it ends by itself
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-lease.Done():
			cancel(errNoLease)
		case <-ctx.Done():
		}
	}()
	lock := s.Meta.Key(lockRow)
	at, err := s.Commit(ctx, []Condition{{lock, 0}},
		[]Write{{Key: lock, Value: []byte(`"held"`), Lease: lease.ID()}})
	if err != nil {
		return err
	}
	err = newMigrator(s, m, Condition{lock, at}).run(ctx)
	if errors.Is(context.Cause(ctx), errNoLease) { // another one may have gone on
		return ErrConflict
	}
	return err
}

// progressOf is how far a migration is: after which row of which step.
type progressOf struct {
	Step  int    `json:"step"`
	After string `json:"after"`
}

// migrator is a migration under way.
type migrator struct {
	Migration
	store *Store
	lock  Condition
	at    progressOf
	batch batchOf
	rows  int // that were written

	clusters map[string]formerCluster
	facts    map[string]formerFacts
	tenants  map[string]string // by subscription
}

func newMigrator(s *Store, m Migration, lock Condition) *migrator {
	return &migrator{
		Migration: m, store: s, lock: lock, clusters: map[string]formerCluster{},
		facts: map[string]formerFacts{}, tenants: map[string]string{},
	}
}

// run takes the steps that are left.
func (w *migrator) run(ctx context.Context) error {
	progress, err := w.store.Meta.Get(ctx, progressRow)
	if err != nil {
		return err
	}
	if progress.Exists() {
		if err := json.Unmarshal(progress.Value, &w.at); err != nil {
			return fmt.Errorf("cannot read how far the migration is: %w", err)
		}
	}
	if err := w.alone(ctx); err != nil {
		return err
	}
	version := []byte(strconv.Itoa(schema)) // keeps programs of the release before away
	if err := w.commit(ctx, Write{Key: formerSchema, Value: version}); err != nil {
		return err
	}
	if err := w.alone(ctx); err != nil { // one may have started meanwhile
		return err
	}
	steps := w.steps()
	for w.at.Step < len(steps) {
		if err := w.take(ctx, steps[w.at.Step]); err != nil {
			return err
		}
		w.at = progressOf{Step: w.at.Step + 1}
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	w.tell("%d rows are written, the former ones are deleted", w.rows)
	for _, prefix := range []string{former + "i/", former + "s/"} {
		if err := w.clear(ctx, prefix); err != nil {
			return err
		}
	}
	return w.commit(ctx, append(versionRows(w.store.Meta.Key(schemaRow)),
		Write{Key: w.store.Meta.Key(progressRow), Delete: true})...)
}

// alone waits until no replica of the release before leads a cluster: the rows that tell so end
// soon after it was stopped or killed.
func (w *migrator) alone(ctx context.Context) error {
	for range formerLeases {
		page, err := w.store.Scan(ctx, formerLeaders, "", 1, 0)
		if err != nil || len(page.KVs) == 0 {
			return err
		}
		w.tell("waiting for the replicas of the release before to end")
		if Pause(ctx, time.Second); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.New("replicas of the release before still run on it; stop them all, and start again")
}

// formerLeases is for how many seconds at most the rows of a replica of the release before remain.
const formerLeases = 15

// formerPage is how many of the former rows are read at once.
const formerPage = 100

// take makes the former rows of a step into ours.
func (w *migrator) take(ctx context.Context, s step) error {
	w.tell("migrating %s", s.table)
	for {
		page, err := w.store.Scan(ctx, s.prefix(), w.at.After, formerPage, 0)
		if err != nil {
			return err
		}
		rows, err := s.read(ctx, page.KVs)
		if err != nil {
			return err
		}
		for i, kv := range page.KVs {
			writes, err := s.row(ctx, rows, kv)
			if err != nil {
				return fmt.Errorf("cannot migrate %s: %w", kv.Key, err)
			}
			if !w.batch.fits(writes) {
				if err := w.flush(ctx); err != nil {
					return err
				}
			}
			w.batch.add(writes)
			w.at.After = page.KVs[i].Key
		}
		if !page.More {
			return w.flush(ctx)
		}
	}
}

// flush writes the batch and how far it goes.
func (w *migrator) flush(ctx context.Context) error {
	at, err := json.Marshal(w.at)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	writes := append(w.batch.writes, Write{Key: w.store.Meta.Key(progressRow), Value: at})
	w.rows += len(w.batch.writes)
	w.batch = batchOf{}
	return w.commit(ctx, writes...)
}

// clear deletes everything below a prefix.
func (w *migrator) clear(ctx context.Context, prefix string) error {
	for {
		page, err := w.store.Scan(ctx, prefix, "", MaxWrites, 0)
		if err != nil || len(page.KVs) == 0 {
			return err
		}
		var writes []Write
		for _, kv := range page.KVs {
			writes = append(writes, Write{Key: kv.Key, Delete: true})
		}
		if err := w.commit(ctx, writes...); err != nil {
			return err
		}
	}
}

// commit writes while nobody else migrates.
func (w *migrator) commit(ctx context.Context, writes ...Write) error {
	_, err := w.store.Commit(ctx, []Condition{w.lock}, writes)
	if err == nil && w.store.Did != nil {
		w.store.Did("migrated")
	}
	return err
}

// batchOf is writes of one transaction, each key once.
type batchOf struct {
	writes []Write
	keys   map[string]bool
	size   int
}

// fits reports whether more writes still fit. A row that is too large by itself fits into an empty
// batch, and the store says so.
func (b *batchOf) fits(writes []Write) bool {
	return len(b.writes) == 0 ||
		len(b.writes)+len(writes) < MaxWrites && b.size+size(writes) < maxBytes/2
}

func (b *batchOf) add(writes []Write) {
	if b.keys == nil {
		b.keys = map[string]bool{}
	}
	for _, w := range writes {
		if !b.keys[w.Key] { // only layers come twice, and they are the same
			b.keys[w.Key] = true
			b.writes, b.size = append(b.writes, w), b.size+len(w.Key)+len(w.Value)
		}
	}
}
