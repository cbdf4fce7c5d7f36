package follow

import (
	"context"
	"errors"
	"fmt"
)

// ErrNotFollowed is the error for a node that follows no provider.
var ErrNotFollowed = errors.New("the node follows no resource provider")

// Leave has the provider delete the Node of this machine, which leaves its cluster.
func Leave(ctx context.Context, q Question) error {
	err := ErrNotFollowed
	for _, m := range q.Ways {
		if !m.Asks {
			continue
		}
		r := q.in(m)
		_, err = r.post(ctx, "leave", struct{}{})
		r.Client.CloseIdleConnections()
		q.Alive()
		if err == nil {
			return nil
		}
		err = fmt.Errorf("cannot have the resource provider delete the Node: %w", err)
	}
	return err
}
