package stories

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	limits "github.com/Azure/AKSFlexNode/internal/policy"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// providers returns a policy that allows everything the stories' providers do, and more limits.
func providers(more string) string {
	return `{"allow": {"overrides": true, "paths": true}` + more + `}`
}

// refusedPaths returns the paths in a policy's refusal of a configuration.
func refusedPaths(t *testing.T, err error) (paths []string) {
	t.Helper()
	if _, refused := errors.AsType[*change.PolicyError](err); !refused {
		t.Fatalf("got %v", err)
	}
	for _, p := range config.AsProblems(err) {
		if !slices.Contains(paths, p.Path) {
			paths = append(paths, p.Path)
		}
	}
	return paths
}

// A machine without a policy accepts no configuration with overrides or other directories from a
// provider, and writes nothing; the same in a file of root is applied.
func TestPolicyAtTheJoin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.allow("")
	before := w.tree()
	d := w.delivery("7")
	paths := refusedPaths(t, change.Receive(t.Context(), w.agent(), d))
	if !slices.Contains(paths, "artifacts.directory") ||
		!slices.Contains(paths, "artifacts.overrides.kubelet.sha256") {
		t.Errorf("refused are %q", paths)
	}
	if w.same(before); w.bundle() != "" {
		t.Error("the configuration was kept")
	}
	if _, err := w.bootstrap(); err != nil {
		t.Errorf("a file that root wrote: %v", err)
	}
	// What is applied now may be delivered; anything else may not.
	again := w.delivery("8", func(c map[string]any) {
		c["artifacts"].(map[string]any)["directory"] = w.config.Artifacts.Directory
	}, pods(42))
	if err := change.Receive(t.Context(), w.agent(), again); err != nil {
		t.Errorf("what is applied: %v", err)
	}
	paths = refusedPaths(t,
		change.Receive(t.Context(), w.agent(), w.delivery("9", func(c map[string]any) {
			c["artifacts"].(map[string]any)["directory"] = w.config.Artifacts.Directory
			c["agent"].(map[string]any)["logDir"] = "/srv/log"
			c["agent"].(map[string]any)["metrics"] = map[string]any{"textfile": "/srv/metrics.prom"}
			c["kubernetes"].(map[string]any)["urlTemplate"] = "https://x.example/{version}/bin"
			c["artifacts"].(map[string]any)["trustMirrorChecksums"] = true
		})))
	if !slices.Equal(paths, []string{"agent.logDir", "agent.metrics.textfile",
		"artifacts.trustMirrorChecksums", "kubernetes.urlTemplate"}) {
		t.Errorf("refused are %q", paths)
	}
}

// A policy that cannot be used, such as a link to a missing file, or that another user can change,
// refuses every configuration of a provider.
func TestPolicyThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.delivery("7")
	w.allow(`{"deletion": "perhaps"}`)
	before := w.tree()
	err := change.Receive(t.Context(), w.agent(), d)
	if refusedPaths(t, err); !strings.Contains(err.Error(), `policy.json`) ||
		!strings.Contains(err.Error(), `deletion: "perhaps" is not allowed`) {
		t.Errorf("got %v", err)
	}
	w.allow(providers(""))
	w.trusted = func(file string) error {
		if strings.HasSuffix(file, "/policy.json") {
			return errors.New("others can change " + file)
		}
		return nil
	}
	err = change.Receive(t.Context(), w.agent(), d)
	if refusedPaths(t, err); !strings.Contains(err.Error(), "can change") {
		t.Errorf("got %v", err)
	}
	w.trusted = nil
	w.allow("")
	file := filepath.Join(w.root, limits.File)
	if err := os.Symlink("/mnt/away/policy.json", file); err != nil {
		t.Fatal(err)
	}
	err = change.Receive(t.Context(), w.agent(), d)
	if refusedPaths(t, err); !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
	w.allow("")
	w.allow(`{"deletion": "perhaps"}`)
	w.same(before)
}

// A version that is left open is checked against the minimum as soon as it is known, and again
// later: the cluster may be upgraded. A stricter policy holds back an earlier delivery.
func TestPolicyAtTheChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.delivery("7", func(c map[string]any) { c["kubernetes"] = map[string]any{} })
	w.allow(providers(`, "minimumVersions": {"kubernetes": "1.99.0"}`))
	a := w.agent()
	if err := change.Receive(t.Context(), a, d); err != nil {
		t.Fatal(err)
	}
	in := change.Input{Config: d.Loaded.Config, Document: d.Loaded.Document, Origin: "url"}
	_, err := change.Bootstrap(t.Context(), a, in)
	if paths := refusedPaths(t, err); !slices.Equal(paths, []string{"kubernetes.version"}) {
		t.Errorf("refused are %q", paths)
	}
	if o := change.Verdict(err); o.Kind != transition.Refused || o.Every == 0 {
		t.Errorf("it is %s, tried again every %s", o.Kind, o.Every)
	}
	w.allow("")
	_, err = change.Bootstrap(t.Context(), a, in)
	if paths := refusedPaths(t, err); !slices.Contains(paths, "artifacts.directory") {
		t.Errorf("refused are %q", paths)
	}
	w.allow(providers(`, "minimumVersions": {"kubernetes": "1.34.4"}`))
	d = w.delivery("8")
	if err := change.Receive(t.Context(), a, d); err != nil {
		t.Fatal(err)
	}
	in.Config, in.Document = d.Loaded.Config, d.Loaded.Document
	if _, err := change.Bootstrap(t.Context(), a, in); err != nil {
		t.Error(err)
	}
}

// The hosts of the policy also limit an API server that Azure names, at the join; the one of the
// node remains allowed.
func TestPolicyForTheServerOfAzure(t *testing.T) {
	t.Parallel()
	w, _ := azureWorld(t)
	w.cluster.newCA("api-1.example")
	w.cluster.move("api-1.example:6443")
	w.cluster.bootstrappers = true
	w.simulateAzure(t, canary)
	azure, err := url.Parse(w.cluster.issuer)
	if err != nil {
		t.Fatal(err)
	}
	limited := func(hosts string) string {
		return `{"hosts": {"endpoints": ["` + azure.Hostname() + `"` + hosts + `]},
			"allow": {"overrides": true, "paths": true, "apiServer": false}}`
	}
	w.allow(limited(""))
	if err := w.receive(w.delivery("7", w.azure(nil))); err != nil {
		t.Fatal(err)
	}
	_, err = w.joinAsDelivered()
	if paths := refusedPaths(t, err); !slices.Equal(paths, []string{"node.kubelet.serverURL"}) {
		t.Errorf("refused are %q", paths)
	}
	w.allow(limited(`, "api-1.example"`))
	if _, err := w.joinAsDelivered(); err != nil {
		t.Fatal(err)
	}
	w.allow(limited(""))
	named := func(c map[string]any) {
		c["node"].(map[string]any)["kubelet"].(map[string]any)["serverURL"] = w.cluster.URL
	}
	for version, edit := range map[string]func(map[string]any){"8": pods(42), "9": named} {
		if err := w.receive(w.delivery(version, w.azure(nil), edit)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.joinAsDelivered(); err != nil {
			t.Errorf("version %s: %v", version, err)
		}
	}
}

// A refusal by the policy is reported, and nothing changes; once allowed, the same offer is
// applied, also one that was refused only when its change began.
func TestFollowsWithinThePolicy(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.sleep(2 * time.Minute)
		kept := s.bundle()
		s.allow("")
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42)))
		s.until(3*time.Minute, "the refusal is reported", func() bool {
			c := s.provider.said().Config
			return c != nil && c.Failed != nil && c.Failed.Version == "8" && c.Applied == "7" &&
				c.Failed.Reason == "RefusedByPolicy" &&
				strings.Contains(c.Failed.Message, "artifacts.directory")
		})
		s.until(3*time.Minute, "the condition is reported", func() bool {
			return slices.ContainsFunc(s.provider.said().Conditions, func(c api.Condition) bool {
				return c.Type == "ConfigurationAccepted" && c.Reason == "RefusedByPolicy"
			})
		})
		s.rests(time.Hour)
		if c := s.condition("ConfigurationAccepted"); c.Reason != health.RefusedByPolicy ||
			c.Owner != health.OwnerMachine {
			t.Errorf("the condition is %+v", c)
		}
		if s.bundle() != kept || !s.takes("110")() {
			t.Error("something was changed")
		}
		s.allow(providers(""))
		s.until(3*time.Minute, "the version is applied", s.takes("42"))
		kept = s.bundle()
		s.until(3*time.Minute, "no failure is reported", func() bool {
			c := s.provider.said().Config
			return c.Failed == nil && c.Applied == "8"
		})
		s.healthy("42")
		pause := func(length time.Duration) {
			if _, err := change.SetPause(t.Context(), s.agent(), length, "x"); err != nil {
				t.Fatal(err)
			}
		}
		pause(time.Hour)
		s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), pods(43)))
		s.until(3*time.Minute, "the version is received", func() bool { return s.bundle() != kept })
		s.allow("{")
		pause(0)
		s.until(5*time.Minute, "the beginning is refused", func() bool {
			return s.condition("ConfigurationAccepted").Reason == health.RefusedByPolicy
		})
		s.rests(time.Hour)
		s.allow(providers(""))
		s.until(time.Minute, "it begins", s.takes("43"))
		s.until(3*time.Minute, "it is accepted", func() bool {
			return s.condition("ConfigurationAccepted").Status == health.True
		})
	})
}

// A deletion waits for a person, or is ignored, according to the policy; with a policy that cannot
// be used it waits. If the policy lets the provider decide, the machine is given back.
func TestFollowsToTheEndOfThePolicy(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, before string) {
		s.sleep(2 * time.Minute)
		waits := func(reason string) func() bool {
			return func() bool {
				c := s.condition("NoChangeWaiting")
				return c.Status == health.False && c.Reason == reason && c.Owner == health.OwnerMachine &&
					strings.Contains(c.Message, "unbootstrap")
			}
		}
		s.allow(providers(`, "deletion": "confirm"`))
		s.provider.offers(change.Delivery{})
		s.until(5*time.Minute, "it waits for a person", waits("DeletionWaits"))
		s.rests(time.Hour)
		s.healthy("110")
		s.allow(providers(`, "deletion": "never"`))
		s.until(5*time.Minute, "it is ignored", waits("RefusedByPolicy"))
		s.allow(`{`)
		s.until(5*time.Minute, "it waits for a person again", waits("DeletionWaits"))
		if !s.registered() || s.bundle() == "" {
			t.Error("the machine was given back")
		}
		s.allow(providers(`, "deletion": "never"`))
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42)))
		s.until(5*time.Minute, "it is followed again", func() bool {
			return s.takes("42")() && s.condition("NoChangeWaiting").Status == health.True
		})
		s.allow(providers(""))
		s.provider.offers(change.Delivery{})
		s.ends()
		if s.outcome.Kind != transition.Deleted || s.registered() {
			t.Errorf("it ended with %v", s.outcome)
		}
	})
}

// A provider may not go back from an epoch and a version until a person resets them; then it
// continues from those that it offers next.
func TestFollowsBackWhenAPersonSaysSo(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.sleep(2 * time.Minute)
		refused := func(version string) func() bool {
			return func() bool {
				c := s.provider.said().Config
				return c != nil && c.Failed != nil && c.Failed.Version == version &&
					strings.Contains(c.Failed.Message, "goes back")
			}
		}
		s.provider.offers(s.delivery("3", monitored, readyTimeout("1m"), pods(42)))
		s.until(3*time.Minute, "it is refused", refused("3"))
		s.rests(time.Hour)
		if !s.takes("110")() {
			t.Fatal("it went back")
		}
		forgotten, err := change.Forget(t.Context(), s.agent())
		if err != nil || len(forgotten) != 1 || forgotten[0].ConfigVersion != "7" {
			t.Errorf("forgotten is %v: %v", forgotten, err)
		}
		s.until(3*time.Minute, "it goes back", s.takes("42"))
		s.until(3*time.Minute, "the version is reported", func() bool {
			c := s.provider.said().Config
			return c.Failed == nil && c.Applied == "3"
		})
		s.provider.offers(s.delivery("2", monitored, readyTimeout("1m"), pods(43)))
		s.until(3*time.Minute, "the next way back is refused", refused("2"))
		s.provider.offers(s.delivery("4", monitored, readyTimeout("1m"), pods(44)))
		s.until(3*time.Minute, "it goes on", s.takes("44"))
		s.provider.offers(s.delivery("7", monitored, readyTimeout("1m"), pods(47)))
		s.until(3*time.Minute, "the forgotten version comes again", s.takes("47"))
		s.provider.offers(s.delivery("5", monitored, readyTimeout("1m"), pods(45)))
		s.until(3*time.Minute, "the way back from it is refused", refused("5"))
	})
}

// A machine without a provider's configuration has nothing to reset.
func TestNothingToForget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	before := w.tree()
	if _, err := change.Forget(t.Context(), w.agent()); err == nil ||
		!strings.Contains(err.Error(), "no configuration from a provider") {
		t.Errorf("got %v", err)
	}
	w.same(before)
}
