package stories

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// A resource that cannot be observed ends neither a check nor a repair, hides no other drift, and
// does not count as configured.
func TestDriftBesideWhatCannotBeObserved(t *testing.T) {
	const blind, other = "/etc/sysctl.d/999-aks-flex-node.conf", "/etc/containerd/config.toml"
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	good := w.read(other)
	if err := errors.Join(os.Remove(w.root+blind), unix.Mkfifo(w.root+blind, 0o644)); err != nil {
		t.Fatal(err)
	}
	if found := w.check(); len(found.Drift) > 0 {
		t.Errorf("drift is %v", found.Drift)
	}
	c := w.condition(health.HostAsConfigured)
	if c.Status != health.Unknown || !strings.Contains(c.Message, blind) {
		t.Errorf("the condition is %+v", c)
	}
	if _, err := w.drift(false); err == nil || !strings.Contains(err.Error(), blind) {
		t.Errorf("the error is %v", err)
	}
	w.write(other, "another")
	if found := w.check(); len(found.Drift) == 0 {
		t.Errorf("drift is %v", found.Drift)
	}
	if _, err := w.drift(true); err != nil || w.read(other) != good {
		t.Errorf("%s is not repaired: %v", other, err)
	}
	w.config.Node.Labels = map[string]string{"site": "new"}
	_, err := w.bootstrap()
	if _, ok := errors.AsType[*apply.BlindError](err); !ok {
		t.Errorf("a change of what cannot be observed gives %v", err)
	}
}
