package store

import (
	"context"
	"errors"
)

// errWentBack is a store that is at an earlier revision than it was: it was restored from a backup
// while replicas run.
var errWentBack = errors.New("the store is behind what it has told")

// followOn is as Follow of the changes after a revision, which moves on as see is called. It ends
// also when the store has gone back. A member of it that is behind the others for a moment is not
// taken for that.
func (s *Store) followOn(
	ctx context.Context, prefix string, revision func() int64, see func(Batch),
) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := s.Follow(inner, prefix, revision(), func(b Batch) {
		if inner.Err() != nil {
			return
		}
		if b.Revision >= revision() {
			see(b)
			return
		}
		_, now, err := s.Read(inner, prefix)
		if err == nil && now < revision() {
			cancel(errWentBack)
		}
	})
	if errors.Is(context.Cause(inner), errWentBack) {
		return errWentBack
	}
	return err
}
