package stories

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/agent/service"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// The versions of the resource: the node's max pods identify the one that runs.
const (
	versionBefore, podsBefore = "7", 110
	versionAfter, podsAfter   = "8", 42
)

// followedCampaigns returns the transitions of a node that follows its flexNodeConfig.
func followedCampaigns() []campaign {
	change := func(w *world) {
		w.offer = w.delivery(versionAfter, polledWith(newSecret), pods(podsAfter),
			func(c map[string]any) {
				c["node"].(map[string]any)["labels"] = map[string]any{"example.com/site": "south"}
			})
		w.provider = &provider{offer: w.offer, changed: make(chan struct{})}
		w.config = w.offer.Loaded.Config
	}
	joined := func(w *world) error {
		w.offer = w.delivery(versionBefore, monitored)
		w.config = w.offer.Loaded.Config
		return w.joinsByURL()
	}
	return []campaign{
		{name: "join by a URL", run: (*world).joinsByURL, prepare: func(w *world) error {
			w.offer = w.delivery(versionBefore, monitored)
			w.config = w.offer.Loaded.Config
			return nil
		}, again: func(w *world) error {
			return errors.Join(w.joinsByURL(), w.saysWhich(versionBefore, podsBefore))
		}},
		{name: "followed change", run: (*world).takesOffer, prepare: func(w *world) error {
			err := joined(w)
			change(w)
			return err
		}, killed: (*world).providerGoes, again: func(w *world) error {
			err := errors.Join(w.takesOffer(), w.saysWhich(versionAfter, podsAfter), w.asksOnce())
			return errors.Join(err, w.keepsSecrets(firstSecret, newSecret))
		}},
		{name: "followed upgrade without power", cut: true, run: (*world).takesOffer,
			prepare: func(w *world) error {
				err := joined(w)
				change(w)
				w.offer = w.delivery(versionAfter, monitored, pods(podsAfter),
					w.kubernetes("1.35.1", "1.35.1"))
				w.keepsCordon()
				return err
			}, killed: (*world).providerGoes, again: func(w *world) error {
				return errors.Join(w.takesOffer(), w.saysWhich(versionAfter, podsAfter), w.asksOnce())
			}},
		{name: "followed rollback", run: (*world).takesOffer, prepare: func(w *world) error {
			err := joined(w)
			w.refuseChangedKubelet()
			change(w)
			return err
		}, killed: (*world).providerGoes, again: func(w *world) error {
			err := errors.Join(w.takesOffer(), w.saysWhich(versionBefore, podsBefore))
			return errors.Join(err, w.keepsSecrets(firstSecret))
		}},
		{name: "deletion of the resource", run: (*world).seesDeletion, prepare: joined,
			again: func(w *world) error {
				begun := w.isLeaving()
				if err := w.reconciles(); err != nil {
					return err
				}
				if joined := w.has(saved.JoinFile); begun && joined {
					return errors.New("the machine has joined again")
				}
				if err := w.joinsByURL(); err != nil {
					return err
				}
				return w.saysWhich(versionBefore, podsBefore)
			}},
	}
}

// delivered returns the last delivered configuration, as the daemon reads it.
func (w *world) delivered(ctx context.Context, a *change.Agent) (change.Input, error) {
	before, err := inspect.Applied(ctx, &a.Env)
	if err != nil {
		return change.Input{}, err
	}
	bundle := []byte(w.bundle())
	host := config.Host{HostName: "edge-1", Arch: runtime.GOARCH, Before: before}
	read, err := config.Parse(bundle, host)
	return change.Input{
		Config: read.Config, Document: read.Document, Origin: "url", Resource: read.Resource,
	}, err
}

// watches returns the daemon's worker on a machine that follows.
func (w *world) watches(ctx context.Context, a *change.Agent) *service.Watcher {
	load := func() (change.Input, error) { return w.delivered(ctx, a) }
	return &service.Watcher{Agent: a, Load: load, Live: service.NewLive("story")}
}

// joinsByURL acts as the one command, and then as its service.
func (w *world) joinsByURL() error {
	return w.run(func(ctx context.Context, a *change.Agent) error {
		if err := change.Receive(ctx, a, w.offer); err != nil {
			return err
		}
		return w.watches(ctx, a).Reconcile(ctx).Err
	})
}

// takesOffer receives the provider's offer and applies it. It accepts that it was rolled back, or
// is not tried again.
func (w *world) takesOffer() error {
	return w.run(func(ctx context.Context, a *change.Agent) error {
		in, err := w.delivered(ctx, a)
		if err != nil {
			return err
		}
		d := w.watches(ctx, a)
		if err := service.Follow(ctx, a, in, d.Live).Receive(ctx, w.offer.Bundle); err != nil {
			return err
		}
		ended := d.Reconcile(ctx)
		if w.refused && ended.Kind == transition.Refused {
			return nil
		}
		return ended.Err
	})
}

// seesDeletion gives the machine back, since its resource is gone.
func (w *world) seesDeletion() error {
	return w.run(func(ctx context.Context, a *change.Agent) error {
		in, err := w.delivered(ctx, a)
		if err != nil {
			return err
		}
		d := w.watches(ctx, a)
		d.Follows = service.Follow(ctx, a, in, d.Live)
		return d.Leave(ctx).Err
	})
}

// reconciles acts as the service after a restart.
func (w *world) reconciles() error {
	if w.bundle() == "" && !w.has(saved.TransitionFile) {
		return nil // it waits for a configuration
	}
	err := w.run(func(ctx context.Context, a *change.Agent) error {
		return w.watches(ctx, a).Reconcile(ctx).Err
	})
	if ended := transition.Of(err).Kind; ended == transition.Deleted || ended == transition.Left {
		return nil
	}
	return err
}

// has reports whether the agent has a record with a name.
func (w *world) has(record string) bool {
	_, err := os.Stat(filepath.Join(w.root, saved.StateDir, record))
	return err == nil
}

// isLeaving reports whether the machine is being given back, or was.
func (w *world) isLeaving() bool { return w.has(saved.TransitionFile) || w.bundle() == "" }

// saysWhich returns an error unless the machine runs a version and reports it.
func (w *world) saysWhich(version string, pods int) error {
	says, err := os.ReadFile(w.root + saved.StateDir + "/config-version.txt")
	if err != nil || string(says) != version+"\n" || maxPods(w.root) != fmt.Sprint(pods) {
		return errors.Join(err, fmt.Errorf("the node says version %q and takes %s pods, want version "+
			"%s with %d", says, maxPods(w.root), version, pods))
	}
	return nil
}

// keepsSecrets returns an error unless credentials.json has exactly the given secrets of the node.
func (w *world) keepsSecrets(want ...string) error {
	kept, err := os.ReadFile(w.root + saved.StateDir + "/credentials.json")
	for _, secret := range []string{firstSecret, newSecret} {
		if strings.Contains(string(kept), secret) != slices.Contains(want, secret) {
			err = errors.Join(err, fmt.Errorf("credentials.json is %s", kept))
		}
	}
	return err
}

// eitherVersion fails unless a machine without a transition has one version or the other, and its
// records name it; during a transition the record must name both. config-version.txt follows when
// the service runs again.
func (w *world) eitherVersion(t *testing.T, when string) {
	t.Helper()
	record, err := os.ReadFile(w.root + saved.StateDir + "/transition.json")
	if err == nil {
		if !strings.Contains(string(record), `"to"`) || !strings.Contains(string(record), `"from"`) {
			t.Errorf("%s, the change under way does not say between which: %s", when, record)
		}
		return
	}
	applied, err := inspect.Applied(t.Context(), &w.agent().Env)
	if err != nil || applied == nil {
		t.Fatalf("%s, nothing is applied: %v", when, err)
	}
	says := fmt.Sprint(applied.Node.MaxPods)
	if is := maxPods(w.root); is != says ||
		says != fmt.Sprint(podsBefore) && says != fmt.Sprint(podsAfter) {
		t.Errorf("%s, the node takes %s pods, and the record says %s", when, is, says)
	}
}

// providerGoes is eitherVersion; it stops the provider if the node is under a change that has
// begun, which must not need it.
func (w *world) providerGoes(t *testing.T, when string) {
	t.Helper()
	w.eitherVersion(t, when)
	var left transition.Transition
	found, err := w.agent().Records().Load(saved.TransitionFile, &left)
	if err != nil {
		t.Fatal(err)
	}
	phases := transition.Phases(left.Kind)
	begun := slices.Index(phases, left.Phase) > slices.Index(phases, transition.Ask)
	if found && begun && left.Asks != "" {
		t.Errorf("%s, a change that has begun asks again: %+v", when, left)
	}
	w.provider.set(func() { w.provider.down = found && begun })
}

// asksOnce returns an error unless the provider was asked about one version, once for each attempt
// except the killed one.
func (w *world) asksOnce() error {
	w.provider.mu.Lock()
	defer w.provider.mu.Unlock()
	n := len(w.provider.asked)
	if n == 0 || n > 2 || slices.ContainsFunc(w.provider.asked,
		func(version string) bool { return version != versionAfter }) {
		return fmt.Errorf("the provider was asked for %q", w.provider.asked)
	}
	return nil
}
