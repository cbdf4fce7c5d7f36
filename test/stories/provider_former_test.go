package stories

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
)

// dies applies a version with 42 pods, after which a host does not answer any more.
func (s *serviceStory) dies(host string, change ...func(map[string]any)) {
	s.t.Helper()
	s.onKubelet(func() error {
		if s.takes("42")() {
			s.provider.answersAt(host, fails(unreachable()["timeout"]))
		}
		return nil
	})
	change = append(change, readyTimeout("1m"), pods(42))
	s.provider.offers(s.delivery("8", change...))
	s.until(5*time.Minute, "the version is committed", s.versionIs("8"))
}

// An endpoint that stops answering after its commit does not cut the node off: after a quarter of
// an hour the agent, even of a service restarted meanwhile, also tries the former endpoint with the
// former secret, and applies what it offers.
func TestFormerWayToTheProvider(t *testing.T) {
	for name, restarts := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			followed(t, func(t *testing.T, s *serviceStory, _ string) {
				s.dies(wrongHost, polledWith(newSecret), at(wrongHost))
				if s.sleep(10 * time.Minute); restarts {
					s.restart()
				}
				if s.asked() != wrongHost {
					t.Errorf("too early the provider is asked at %s", s.asked())
				}
				s.keeps(firstSecret, wrongSecret)
				s.until(30*time.Minute, "the former way", func() bool { return s.asked() == usualHost })
				s.provider.set(func() {
					if s.provider.shown != "Bearer of "+firstSecret {
						t.Errorf("the provider was shown %q", s.provider.shown)
					}
				})
				s.until(30*time.Minute, "both ways", func() bool { return s.asked() == wrongHost })
				if !strings.Contains(s.log.String(), "also trying the previous one") {
					t.Error("the log does not tell")
				}
				s.until(time.Minute, "the provider is called silent", s.silent)
				s.provider.offers(s.delivery("9", polledWith(newSecret), readyTimeout("1m"), pods(43)))
				s.until(15*time.Minute, "the corrected version is applied", s.takes("43"))
				s.until(5*time.Minute, "the former secret is erased", s.lacks(firstSecret))
				s.keeps(newSecret, firstSecret)
			})
		})
	}
}

// An endpoint that answers again after the former one was tried is used alone from then on, and the
// former secret is erased.
func TestNewWayToTheProviderAnswersLate(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.dies(wrongHost, polledWith(newSecret), at(wrongHost))
		s.until(30*time.Minute, "the former way", func() bool { return s.asked() == usualHost })
		s.provider.answersAt(wrongHost, nil)
		s.until(15*time.Minute, "the former secret is erased", s.lacks(firstSecret))
		s.keeps(newSecret, firstSecret)
		s.provider.set(func() {
			s.provider.hears = func() {
				if s.provider.host != wrongHost {
					t.Errorf("the provider is asked at %s", s.provider.host)
				}
			}
		})
		s.sleep(time.Hour)
		s.provider.set(func() { s.provider.hears = nil })
		if s.silent() {
			t.Error("the provider is called silent")
		}
	})
}

// A secret is erased only when the provider has accepted the next one; an earlier version that does
// not change the endpoint keeps it.
func TestFormerSecretIsErasedLate(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.dies(usualHost, polledWith(newSecret))
		next := s.delivery("9", polledWith(newSecret), readyTimeout("1m"), pods(43))
		if err := change.Receive(t.Context(), s.agent(), next); err != nil {
			t.Fatal(err)
		}
		s.until(5*time.Minute, "the next version is committed", s.versionIs("9"))
		s.sleep(5 * time.Minute)
		s.keeps(firstSecret, wrongSecret)
		s.keeps(newSecret, wrongSecret)
		s.provider.offers(next)
		s.provider.answersAt(usualHost, nil)
		s.until(10*time.Minute, "the former secret is erased", s.lacks(firstSecret))
		s.keeps(newSecret, firstSecret)
		if found := s.holds(firstSecret); len(found) > 0 {
			t.Errorf("the former secret is in %v", found)
		}
	})
}

// lacks reports whether credentials.json lacks a secret.
func (s *serviceStory) lacks(secret string) func() bool {
	return func() bool {
		return !strings.Contains(s.read(saved.StateDir+"/credentials.json"), secret)
	}
}

// A person may roll back to the former endpoint while the provider answers at none: with the former
// secret, which is the only one that is kept then.
func TestRollbackToTheFormerWay(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.dies(usualHost, polledWith(newSecret))
		s.until(time.Minute, "nothing is under way", func() bool { return s.is().Transition == nil })
		if _, err := change.Rollback(t.Context(), s.agent(), ""); err != nil {
			t.Fatal(err)
		}
		s.healthy("110")
		s.keeps(firstSecret, newSecret)
	})
}
