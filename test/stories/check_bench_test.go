package stories

import (
	"context"
	"runtime/pprof"
	"testing"
)

// BenchmarkCheck measures one check of the daemon. The API server that answers it is in this
// process, too, so in a profile the daemon's part has a tag: go tool pprof -tagfocus who=daemon.
func BenchmarkCheck(b *testing.B) {
	w := newWorld(b)
	if _, err := w.bootstrap(); err != nil {
		b.Fatal(err)
	}
	watcher := w.watcher(w.agent())
	pprof.Do(context.Background(), pprof.Labels("who", "daemon"), func(ctx context.Context) {
		for b.Loop() {
			found, err := watcher.Check(ctx, nil)
			if err != nil || len(found.Drift) > 0 {
				b.Fatalf("found %+v, error %v", found, err)
			}
		}
	})
}
