package stories

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// silent reports whether the provider counts as silent.
func (s *serviceStory) silent() bool {
	return s.condition("ProviderAnswers").Status == health.False
}

// A provider that is polled seldom is not silent after one lost poll, but after two.
func TestFollowsSeldom(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		seldom := func(c map[string]any) {
			c["agent"].(map[string]any)["monitoring"] = map[string]any{"interval": "20m"}
		}
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), seldom))
		s.until(time.Minute, "the version is applied", func() bool {
			return s.read(saved.StateDir+"/config-version.txt") == "8\n"
		})
		var asked, lost atomic.Int32
		s.provider.set(func() {
			s.provider.polls = func(r *http.Request) (*http.Response, error) {
				asked.Add(1)
				if lost.Load() > 0 {
					lost.Add(-1)
					return nil, errors.New("connection reset by peer")
				}
				w := httptest.NewRecorder()
				w.WriteHeader(http.StatusNotModified)
				resp := w.Result()
				resp.Request = r
				return resp, nil
			}
		})
		s.until(40*time.Minute, "a poll", func() bool { return asked.Load() > 0 })
		lost.Store(1)
		s.until(40*time.Minute, "a poll is lost", func() bool { return lost.Load() == 0 })
		for n := asked.Load(); asked.Load() == n; s.sleep(time.Minute) {
			if s.silent() {
				t.Fatal("the provider is called silent after one poll that was lost")
			}
		}
		lost.Store(100)
		s.until(80*time.Minute, "the silent provider is found", s.silent)
		lost.Store(0)
		s.until(40*time.Minute, "the provider answers again", func() bool { return !s.silent() })
	})
}

// A node that does not follow its resource any more reports no missing provider.
func TestFollowsNoMore(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.provider.offers(s.delivery("8", readyTimeout("1m")))
		s.until(time.Minute, "the version is applied", func() bool {
			return s.read(saved.StateDir+"/config-version.txt") == "8\n"
		})
		s.sleep(time.Minute)
		asked := 0
		s.provider.set(func() {
			s.provider.down = true
			s.provider.hears = func() { asked++ }
		})
		s.sleep(time.Hour)
		if s.silent() {
			t.Error(s.condition("ProviderAnswers").Message)
		}
		s.provider.set(func() {
			if asked > 0 {
				t.Errorf("the provider is asked %d times", asked)
			}
			s.provider.down = false
		})
		next := s.delivery("9", monitored, readyTimeout("1m"), pods(42))
		if err := change.Receive(t.Context(), s.agent(), next); err != nil {
			t.Fatal(err)
		}
		s.until(time.Minute, "the next configuration is applied", s.takes("42"))
		s.provider.offers(s.delivery("10", monitored, readyTimeout("1m"), pods(43)))
		s.until(3*time.Minute, "the provider is followed again", s.takes("43"))
	})
}

// The polling settings are those of the applied configuration, whatever file the service reads at
// its start: one that was rolled back, or that this release does not accept any more.
func TestFollowsAsApplied(t *testing.T) {
	elsewhere := func(c map[string]any) {
		c["agent"].(map[string]any)["monitoring"] = map[string]any{"endpoint": "https://wrong.example"}
	}
	for name, bad := range map[string]func(map[string]any){
		"it does not follow": func(map[string]any) {},
		"it asks elsewhere":  func(c map[string]any) { monitored(c); elsewhere(c) },
	} {
		t.Run(name, func(t *testing.T) {
			followed(t, func(t *testing.T, s *serviceStory, _ string) {
				s.onKubelet(func() error {
					if s.takes("42")() {
						return errors.New("kubelet does not like this")
					}
					return nil
				})
				s.provider.offers(s.delivery("8", bad, readyTimeout("1m"), pods(42)))
				s.until(5*time.Minute, "the version is rolled back", func() bool {
					return len(s.is().Rejected) > 0 && s.is().Transition == nil
				})
				s.restart()
				s.sleep(2 * time.Minute)
				s.provider.set(func() {
					if s.provider.host == "wrong.example" {
						t.Error("the provider is asked elsewhere")
					}
				})
				s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), pods(43)))
				s.until(2*time.Minute, "the next version is applied", s.takes("43"))
			})
		})
	}
	t.Run("it cannot be used", func(t *testing.T) {
		followed(t, func(t *testing.T, s *serviceStory, _ string) {
			s.end()
			bad := strings.Replace(s.bundle(), `"node":{`, `"node":{"maxPods":"x",`, 1)
			s.write(saved.BundleFile, bad)
			s.start()
			s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), pods(43)))
			s.until(2*time.Minute, "the next version is applied", s.takes("43"))
		})
	})
}

// A node that joined by a file is followed as soon as a provider has delivered a configuration,
// even if that does not work: the next version may.
func TestFollowsAfterAFile(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		s.end()
		first := s.delivery("7", monitored, readyTimeout("1m"), pods(42))
		if err := change.Receive(t.Context(), s.agent(), first); err != nil {
			t.Fatal(err)
		}
		s.onKubelet(func() error {
			if s.takes("42")() {
				return errors.New("kubelet does not like this")
			}
			return nil
		})
		s.provider = &provider{offer: first, changed: make(chan struct{})}
		s.start()
		s.until(5*time.Minute, "the failure is reported", func() bool {
			c := s.provider.said().Config
			return c != nil && c.Failed != nil && c.Failed.Version == "7"
		})
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(43)))
		s.until(2*time.Minute, "the next version is applied", s.takes("43"))
		s.healthy("43")
	})
}

// A configuration that another command has applied sets how the provider is polled from then on.
func TestFollowsAsAnotherCommandSays(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.sleep(time.Minute)
		elsewhere := func(c map[string]any) {
			c["agent"].(map[string]any)["monitoring"] = map[string]any{
				"endpoint": "https://elsewhere.example",
			}
		}
		if err := change.Receive(t.Context(), s.agent(),
			s.delivery("8", monitored, readyTimeout("1m"), elsewhere)); err != nil {
			t.Fatal(err)
		}
		in, err := s.load()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := change.Bootstrap(t.Context(), s.agent(), in); err != nil {
			t.Fatal(err)
		}
		s.until(3*time.Minute, "the provider is asked elsewhere", func() bool {
			s.provider.mu.Lock()
			defer s.provider.mu.Unlock()
			return s.provider.host == "elsewhere.example"
		})
	})
}
