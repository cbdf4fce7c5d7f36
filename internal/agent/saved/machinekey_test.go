package saved

import (
	"context"
	"errors"
	"testing"
)

// A certificate of kubelet that cannot be used proves nothing; one that cannot be read now is an
// error, so that no registration is without it.
func TestSignAsKubelet(t *testing.T) {
	busy := errors.New("too many open files")
	for pair, want := range map[string]error{"no certificate": nil, "": busy} {
		k := Keys{Kubelet: func(context.Context) ([]byte, error) { return []byte(pair), want }}
		certificate, signature, err := k.SignAsKubelet(t.Context(), []byte("x"))
		if certificate != nil || signature != nil || !errors.Is(err, want) {
			t.Errorf("%q: %q, %q, %v, want %v", pair, certificate, signature, err, want)
		}
	}
}
