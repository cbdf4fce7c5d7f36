package stories

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// waits reports whether the status has a waiting change with a reason and a text.
func (s *serviceStory) waits(reason, text string) func() bool {
	return func() bool {
		c := s.condition(health.NoChangeWaiting)
		return c.Status == health.False && c.Reason == reason && strings.Contains(c.Message, text)
	}
}

// nothingWaits reports whether the status has no waiting change.
func (s *serviceStory) nothingWaits() bool {
	return s.condition(health.NoChangeWaiting).Status == health.True
}

// cordoned returns how often the Node was cordoned, and whether it is now.
func (s *serviceStory) cordoned() (times int, now bool) {
	s.cluster.set(func() {
		times, now = s.cluster.cordons, s.cluster.nodes["edge-1"].Spec.Unschedulable
	})
	return times, now
}

// minor returns a change that drains the Node, within a minute.
func (s *serviceStory) minor() []func(map[string]any) {
	return []func(map[string]any){s.kubernetes("1.35.1", "1.35.1"), func(c map[string]any) {
		c["agent"].(map[string]any)["upgradePolicy"] = map[string]any{"deadline": "1m"}
	}}
}

// blocked makes the service drain the Node, on which a budget keeps a pod, until the drain times
// out.
func (s *serviceStory) blocked() {
	s.t.Helper()
	s.join()
	s.cluster.run("db")
	s.cluster.set(func() { s.cluster.guarded = []string{"db"} })
	s.edit(s.minor()...)
	s.until(5*time.Minute, "the change waits", func() bool {
		_, now := s.cordoned() // the drain says what blocks it before it ends
		return !now && s.waits("DrainBlocked", "disruption budget few needs")()
	})
}

// A drain that a budget blocks cordons the Node once an hour, and the node reports the budget.
func TestDrainBlocked(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.blocked()
		for _, text := range []string{"default/db", "; since ", ", next attempt by ",
			"the owner of the workload can help"} {
			if c := s.condition(health.NoChangeWaiting); !strings.Contains(c.Message, text) {
				t.Errorf("the message lacks %q: %s", text, c.Message)
			}
		}
		if is := s.is(); !is.Healthy() || is.Transition != nil {
			t.Errorf("the node that waits is not healthy: %s", s.raw())
		}
		logged := len(s.log.String())
		s.sleep(30 * time.Minute)
		s.restart()
		s.sleep(20 * time.Minute)
		if n, now := s.cordoned(); n != 1 || now {
			t.Errorf("the Node was cordoned %d times, and is cordoned: %v", n, now)
		}
		if grown := len(s.log.String()) - logged; grown > 10_000 {
			t.Errorf("waiting has logged %d bytes", grown)
		}
		before := s.condition(health.NoChangeWaiting)
		s.until(15*time.Minute, "the hourly attempt", func() bool { n, _ := s.cordoned(); return n == 2 })
		s.sleep(3 * time.Minute)
		after := s.condition(health.NoChangeWaiting)
		if !after.Since.Equal(before.Since) || after.Message == before.Message {
			t.Errorf("before the second attempt %+v, after it %+v", before, after)
		}
		if _, now := s.cordoned(); now {
			t.Error("the Node is cordoned")
		}
	})
}

// A change continues within a minute once its pods may be evicted.
func TestDrainUnblocked(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.blocked()
		s.cluster.set(func() { s.cluster.guarded = nil })
		s.until(2*time.Minute, "the change is applied", func() bool {
			return s.kubeletVersion() == "v1.35.1" && s.nothingWaits()
		})
		if n, now := s.cordoned(); n != 2 || now {
			t.Errorf("the Node was cordoned %d times, and is cordoned: %v", n, now)
		}
	})
}

// If a webhook refuses dry runs, only the hourly attempt is left.
func TestDrainUnasked(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.blocked()
		s.cluster.set(func() { s.cluster.guarded, s.cluster.undry = nil, true })
		s.sleep(50 * time.Minute)
		if n, _ := s.cordoned(); n != 1 {
			t.Errorf("the Node was cordoned %d times", n)
		}
		s.until(15*time.Minute, "the change is applied", func() bool {
			return s.kubeletVersion() == "v1.35.1"
		})
	})
}

// A person's bootstrap, or another configuration, does not wait for the hour.
func TestDrainBlockedOvertaken(t *testing.T) {
	for name, overtake := range map[string]func(s *serviceStory){
		"bootstrap": func(s *serviceStory) {
			in, err := s.load()
			if err != nil {
				s.t.Fatal(err)
			}
			err = s.run(func(ctx context.Context, a *change.Agent) error {
				_, err := change.Bootstrap(ctx, a, in)
				return err
			})
			if err == nil || !strings.Contains(err.Error(), "default/db") {
				s.t.Errorf("the error is %v", err)
			}
			if n, _ := s.cordoned(); n != 2 {
				s.t.Errorf("the Node was cordoned %d times", n)
			}
		},
		"back": func(s *serviceStory) {
			s.edit()
			s.until(2*time.Minute, "nothing waits", s.nothingWaits)
		},
		"another change": func(s *serviceStory) {
			s.edit(pods(42))
			s.until(2*time.Minute, "nothing waits", func() bool {
				return s.takes("42")() && s.nothingWaits()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(t *testing.T, s *serviceStory) {
				s.blocked()
				overtake(s)
			})
		})
	}
}

// without removes a version of kubelet from the directory of artifacts.
func (s *serviceStory) without(version string) func(map[string]any) {
	return func(map[string]any) {
		file := filepath.Join(s.store, "dl.k8s.io/v"+version+"/bin/linux/"+runtime.GOARCH+"/kubelet")
		if err := os.Remove(file); err != nil {
			s.t.Fatal(err)
		}
	}
}

// A change whose download fails names the artifact, and is applied once that is there.
func TestDownloadFailed(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		s.edit(append(s.minor(), s.without("1.35.1"))...)
		s.until(5*time.Minute, "the change waits", s.waits("DownloadFailed", "cannot get kubelet 1.35.1"))
		if s.is().Ready != "True" {
			t.Error(s.raw())
		}
		s.edit(s.minor()...)
		s.until(7*time.Minute, "the change is applied", func() bool {
			return s.kubeletVersion() == "v1.35.1" && s.nothingWaits()
		})
	})
}

// overloaded is a mirror that answers no request.
type overloaded struct{}

func (overloaded) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusServiceUnavailable, Body: http.NoBody, Request: r,
	}, nil
}

// The service checks the node while it downloads.
func TestChecksDuringADownload(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		s.mirror = overloaded{}
		began := time.Now()
		s.edit(append(s.minor(), func(c map[string]any) {
			c["artifacts"].(map[string]any)["mirror"] = "https://mirror.example"
			delete(c["artifacts"].(map[string]any), "directory")
		})...)
		s.until(time.Minute, "a check during the download", func() bool {
			is := s.is()
			return is.Ready == "True" && is.Transition != nil &&
				is.Transition.Phase == transition.Prefetch && is.CheckedAt.After(began)
		})
	})
}

// A join whose download fails names the artifact, not the services that cannot run without it.
func TestJoinWithoutDownload(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.edit(s.without("1.34.4"))
		s.start()
		s.until(5*time.Minute, "the join waits", s.waits("DownloadFailed", "cannot get kubelet 1.34.4"))
		for _, c := range s.is().Conditions {
			if c.Ill() && !strings.Contains(c.Message, "cannot get kubelet 1.34.4") {
				t.Errorf("%s: %s: %s", c.Type, c.Reason, c.Message)
			}
		}
		s.edit()
		s.until(7*time.Minute, "the machine is a node", s.isReady)
		s.until(2*time.Minute, "nothing waits", s.nothingWaits)
	})
}

// The same join by a person.
func TestBootstrapWithoutDownload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(w.store, "dl.k8s.io/v1.34.4/bin/linux/"+runtime.GOARCH+"/kubelet")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := w.bootstrap(); err == nil {
		t.Fatal("it has joined")
	}
	s, err := inspect.ReadStatus(t.Context(), &w.agent().Env)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := health.First(s.Conditions)
	if !strings.Contains(c.Message, "cannot get kubelet 1.34.4") {
		t.Errorf("the first condition is %+v", c)
	}
}

// A change that restarts waits for its maintenance window, and reports that, also to the provider.
// The cluster's new CA does not wait.
func TestWindowClosed(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		opens := time.Now().UTC().Add(time.Hour).Truncate(time.Minute)
		next, store := s.cluster.authority(), s.store
		edits := []func(map[string]any){monitored, readyTimeout("1m"), func(c map[string]any) {
			c["agent"].(map[string]any)["upgradePolicy"] = map[string]any{
				"maintenanceWindow": map[string]any{
					"start": opens.Format("15:04"), "duration": "1h",
				},
			}
			c["artifacts"].(map[string]any)["directory"] = store
			kubelet(c)["caCertData"], kubelet(c)["dnsServiceIP"] = encoded(next.trusted), "10.0.0.10"
		}}
		s.provider.offers(s.delivery("8", edits...))
		s.until(2*time.Minute, "the new CA is applied", func() bool {
			return strings.Contains(s.bindings().CA, string(next.trusted)) && s.nothingWaits()
		})
		s.provider.offers(s.delivery("9", append(edits, pods(42))...))
		at := opens.Format(time.RFC3339)
		s.until(2*time.Minute, "the change waits", s.waits("WindowClosed", "next attempt by "+at))
		s.until(2*time.Minute, "it is reported", func() bool {
			for _, c := range s.provider.said().Conditions {
				if c.Type == health.NoChangeWaiting && strings.Contains(c.Message, at) {
					return true
				}
			}
			return false
		})
		if c := s.provider.said().Config; c.Observed != "9" || c.Applied != "8" {
			t.Errorf("reported %+v", c)
		}
		s.until(time.Hour, "the window opens", s.takes("42"))
		if time.Now().Before(opens) {
			t.Errorf("it was changed at %s", time.Now())
		}
		s.until(2*time.Minute, "nothing waits", s.nothingWaits)
	})
}

// A change whose proof an API server does not give waits for it.
func TestProofWaits(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.waiting(true)
		s.until(25*time.Minute, "the change waits", s.waits("APIServerSilent", "does not answer"))
		if d := s.is().Drift; len(d) > 0 {
			t.Errorf("drift is %+v", d)
		}
		s.cluster.set(func() { s.cluster.down = false })
		s.until(7*time.Minute, "nothing waits", s.nothingWaits)
		s.healthy("42")
	})
}

// A long drain reports the budget that blocks it meanwhile.
func TestDrainBlockedIsTold(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.cluster.run("db")
		s.cluster.set(func() { s.cluster.guarded = []string{"db"} })
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"),
			s.kubernetes("1.35.1", "1.35.1")))
		s.until(3*time.Minute, "it is reported", func() bool {
			for _, c := range s.provider.said().Conditions {
				if c.Type == health.NoChangeWaiting && strings.Contains(c.Message, "budget few") {
					return true
				}
			}
			return false
		})
		if n, now := s.cordoned(); n != 1 || !now {
			t.Errorf("the Node was cordoned %d times, and is cordoned: %v", n, now)
		}
	})
}

// On a machine whose join is refused, the status says why.
func TestStatusOfARefusedJoin(t *testing.T) {
	w := newWorld(t)
	w.facts = func(f *host.Facts) { f.Free["/var/lib"] = 1 << 20 }
	err := w.run(func(ctx context.Context, a *change.Agent) error {
		claim, err := change.Acquire(a, saved.DaemonLockFile, "agent")
		if err != nil {
			return err
		}
		defer claim.Close()
		if err := w.watcher(a).Reconcile(ctx).Err; err == nil {
			return errors.New("a machine with a full disk joins")
		}
		_, err = inspect.ReadStatus(ctx, &a.Env)
		return err
	})
	if text := fmt.Sprint(err); !errors.Is(err, inspect.ErrNoNode) ||
		!strings.Contains(text, "DiskSpace") || strings.Contains(text, "--config FILE") {
		t.Errorf("the status is: %s", text)
	}
}
