package artifact

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// A failed download is an *Error, from WaitAll and from WaitFor, also where the source is a
// directory; what is no failed download is none.
func TestFailedDownloadIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		absent, other := binary(Kubelet, noise(1, 10)), binary(Runc, noise(2, 10))
		tests := []struct {
			name    string
			source  Source
			cause   Cause // "" for no *Error
			stopped bool
		}{
			{"not in artifacts.directory", Source{Directory: t.TempDir()}, NotFound, false},
			{"no network", Source{HTTP: newNetwork(t, nil).client(t)}, DNS, false},
			{"not configured well", Source{Mirrors: []string{"nonsense"}}, "", false},
			{"stopped", Source{HTTP: newNetwork(t, nil).client(t)}, "", true},
		}
		for _, tt := range tests {
			ctx, cancel := context.WithCancel(t.Context())
			if tt.stopped {
				cancel()
			}
			f := &Fetcher{Store: t.TempDir(), Artifacts: []Artifact{absent}, Source: tt.source}
			d := f.Start(ctx)
			d.Idle(t.Context())
			cancel()
			waited := d.WaitFor(t.Context(), f.Store, f.Store+"/"+absent.ID+"/kubelet")
			for from, err := range map[string]error{"WaitAll": d.WaitAll(t.Context(), nil, nil),
				"WaitFor": waited, "wrapped": fmt.Errorf("cannot apply: %w", waited)} {
				e, ok := errors.AsType[*Error](err)
				if err == nil || ok != (tt.cause != "") {
					t.Errorf("%s, %s: %v is an *Error: %v", tt.name, from, err, ok)
				} else if ok && (e.Cause != tt.cause || e.Name != Kubelet || e.Local()) {
					t.Errorf("%s, %s: %+v", tt.name, from, e)
				}
			}
			err := d.WaitFor(t.Context(), f.Store, f.Store+"/"+other.ID+"/runc")
			if err != nil {
				t.Errorf("%s: what was not asked for: %v", tt.name, err)
			}
		}
	})
}
