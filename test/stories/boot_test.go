package stories

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// followsByKey runs a story of a joined node that follows its resource with its key.
func followsByKey(t *testing.T, tell func(t *testing.T, s *serviceStory)) {
	story(t, func(t *testing.T, s *serviceStory) {
		offer := s.delivery("7", keyed, readyTimeout("1m"))
		s.provider = &provider{offer: offer, changed: make(chan struct{})}
		if err := change.Receive(t.Context(), s.agent(), offer); err != nil {
			t.Fatal(err)
		}
		s.join()
		s.applies("7")
		tell(t, s)
		s.end()
	})
}

// applies waits until the node reports a version as applied.
func (s *serviceStory) applies(version string) {
	s.t.Helper()
	s.until(10*time.Minute, "version "+version+" is reported", func() bool {
		c := s.provider.said().Config
		return c != nil && c.Applied == version
	})
}

// reported returns a condition in the node's report.
func (s *serviceStory) reported(kind string) (c api.Condition) {
	for _, c := range s.provider.said().Conditions {
		if c.Type == kind {
			return c
		}
	}
	return c
}

// The tokens of a machine contain its boot id: one for each boot, unchanged by restarts of its
// service and by a suspended machine.
func TestTokensNameTheBoot(t *testing.T) {
	followsByKey(t, func(t *testing.T, s *serviceStory) {
		s.end()
		s.start()
		s.rests(8 * time.Hour)
		s.provider.set(func() {
			if len(s.provider.boots) != 1 {
				t.Errorf("boots %q in one", s.provider.boots)
			}
		})
		info, err := os.Stat(filepath.Join(s.root, saved.RunDir, saved.BootFile))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("the boot's id: %v, %v", info, err)
		}
		s.reboots(time.Minute)
		s.sleep(10 * time.Minute)
		s.provider.set(func() {
			if len(s.provider.boots) != 2 {
				t.Errorf("boots %q after a reboot", s.provider.boots)
			}
		})
	})
}

// A machine beside which another was seen reports that, and continues; one that is refused reports
// that, changes nothing, and continues when its owner confirms it.
func TestToldOfASecondMachine(t *testing.T) {
	followsByKey(t, func(t *testing.T, s *serviceStory) {
		told := func(is bool) func() bool {
			return func() bool { return is == (s.reported("OnlyMachine").Reason == "SecondMachine") }
		}
		s.provider.set(func() { s.provider.second = true })
		s.until(10*time.Minute, "it reports the second machine", told(true))
		s.provider.offers(s.delivery("8", keyed, readyTimeout("1m"), pods(42)))
		s.applies("8")
		s.provider.set(func() { s.provider.second = false })
		s.until(10*time.Minute, "it is alone again", told(false))

		s.provider.set(func() { s.provider.refuses = s.provider.boots[0] })
		s.provider.offers(s.delivery("9", keyed, readyTimeout("1m"), pods(43)))
		s.until(time.Hour, "its own status has the reason", func() bool {
			return s.condition("OnlyMachine").Reason == "SecondMachine"
		})
		s.healthy("42")
		s.provider.set(func() { s.provider.refuses = "" })
		s.applies("9")
		s.healthy("43")
	})
}

// The secret of a new URL registers another key, which ends a stolen one. An offer that was fetched
// before does not replace it.
func TestNewURLMakesAnotherKey(t *testing.T) {
	followsByKey(t, func(t *testing.T, s *serviceStory) {
		const fresh = "twice"
		before := s.machineKey()
		s.provider.set(func() { s.provider.fresh = fresh })
		again, _ := s.provider.now()
		bundle, err := config.WithJoining(again.Bundle, config.Joining{
			EnrolmentSecret: fresh, Root: config.JoiningOf(again.Bundle).Root,
		})
		if err != nil {
			t.Fatal(err)
		}
		fetched := again.Bundle
		again.Bundle, again.URLSHA256 = bundle, "another"
		if err := change.Receive(t.Context(), s.agent(), again); err != nil {
			t.Fatal(err)
		}
		if err := s.following(s.agent(), nil).Receive(t.Context(), fetched); err == nil {
			t.Error("the offer fetched with the previous secret was stored")
		}
		s.until(5*time.Minute, "another key is registered", func() bool {
			is := s.machineKey()
			s.provider.mu.Lock()
			defer s.provider.mu.Unlock()
			return is != "" && is != before && is == s.provider.key
		})
		if err := change.Receive(t.Context(), s.agent(), again); err != nil {
			t.Fatal(err)
		}
		s.rests(time.Hour)
		s.provider.offers(s.delivery("8", keyed, readyTimeout("1m"), pods(42)))
		s.applies("8")
		is := s.machineKey()
		s.provider.set(func() {
			if is != s.provider.key || s.provider.registered != 2 {
				t.Errorf("registered %d times", s.provider.registered)
			}
		})
	})
}

// A machine whose clock is ten minutes off follows its resource.
func TestFollowsWithAnotherClock(t *testing.T) {
	for name, ahead := range map[string]time.Duration{
		"behind": 10 * time.Minute, "ahead": -10 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			followsByKey(t, func(t *testing.T, s *serviceStory) {
				s.provider.set(func() { s.provider.ahead = ahead })
				s.provider.offers(s.delivery("8", keyed, readyTimeout("1m"), pods(42)))
				s.applies("8")
				s.healthy("42")
			})
		})
	}
}
