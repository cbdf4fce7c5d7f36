package stories

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// silent tells whether the provider is called silent.
func (s *service) silent() bool {
	return s.condition(health.ProviderAnswers).Status == health.False
}

// A provider that is asked once in an hour is not silent because one poll was lost, and is when the
// next one is lost, too.
func TestFollowsSeldom(t *testing.T) {
	followed(t, func(t *testing.T, s *service, _ string) {
		hourly := func(c map[string]any) {
			c["agent"].(map[string]any)["monitoring"] = map[string]any{"interval": "1h"}
		}
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), hourly))
		s.until(time.Minute, "the version is applied", func() bool {
			return s.read(agent.StateDir+"/config-version.txt") == "8\n"
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
		s.until(2*time.Hour, "a poll", func() bool { return asked.Load() > 0 })
		lost.Store(1)
		s.until(2*time.Hour, "a poll is lost", func() bool { return lost.Load() == 0 })
		for n := asked.Load(); asked.Load() == n; s.sleep(time.Minute) {
			if s.silent() {
				t.Fatal("the provider is called silent after one poll that was lost")
			}
		}
		lost.Store(100)
		s.until(4*time.Hour, "the silent provider is found", s.silent)
		lost.Store(0)
		s.until(2*time.Hour, "the provider answers again", func() bool { return !s.silent() })
	})
}

// A node that does not follow its resource any more misses no provider.
func TestFollowsNoMore(t *testing.T) {
	followed(t, func(t *testing.T, s *service, _ string) {
		s.provider.offers(s.delivery("8", readyTimeout("1m")))
		s.until(time.Minute, "the version is applied", func() bool {
			return s.read(agent.StateDir+"/config-version.txt") == "8\n"
		})
		s.provider.set(func() { s.provider.down = true })
		s.sleep(time.Hour)
		if s.silent() {
			t.Error(s.condition(health.ProviderAnswers).Message)
		}
	})
}
