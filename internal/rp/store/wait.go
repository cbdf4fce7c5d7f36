package store

import "context"

// Wait reads a row, and again each time that it has changed, until it is as wanted or ctx ends. It
// returns the row as it was read last; the error is why it cannot be read. It hears of changes from
// the process' index (Index.Follow), and reads nothing as long as the row does not change.
func (t Table[T]) Wait(ctx context.Context, key string, wanted func(Row[T]) bool) (Row[T], error) {
	l, leave := t.store.feed.listen(t.prefix + key)
	defer leave()
	row, err := t.Get(ctx, key)
	for err == nil && !wanted(row) {
		select {
		case <-ctx.Done():
			return row, nil
		case <-l.told:
			t.store.feed.take(l)
		}
		next, failed := t.Get(ctx, key)
		if failed != nil && ctx.Err() != nil {
			return row, nil
		}
		row, err = next, failed
	}
	return row, err
}
