package front

import (
	"cmp"
	"crypto/sha256"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/Azure/AKSFlexNode/internal/rp/fair"
)

// tokens caches the callers of verified tokens until these expire.
type tokens struct {
	known *lru.Cache[[sha256.Size]byte, verified]
	now   func() time.Time
}

type verified struct {
	caller Caller
	ends   time.Time
}

func newTokens(size int, now func() time.Time) tokens {
	return tokens{fair.NewCache[[sha256.Size]byte, verified](size), now}
}

func (t tokens) caller(token string) (Caller, bool) {
	found, ok := t.known.Get(sha256.Sum256([]byte(token)))
	return found.caller, ok && t.now().Before(found.ends)
}

// remember adds a token, and removes expired ones: at most two of the least recently used, which is
// more than are added.
func (t tokens) remember(token string, c Caller, ends time.Time) {
	t.known.Add(sha256.Sum256([]byte(token)), verified{c, ends})
	for range 2 {
		if _, oldest, _ := t.known.GetOldest(); t.now().Before(oldest.ends) {
			return
		}
		t.known.RemoveOldest()
	}
}

// limiters holds the rate limiter of each caller.
type limiters struct {
	*lru.Cache[string, *rate.Limiter]
}

func newLimiters() limiters { return limiters{fair.NewCache[string, *rate.Limiter](10_000)} }

// of returns the limiter of a caller: a burst, then one request after each pause.
func (l limiters) of(key string, again time.Duration, burst int) *rate.Limiter {
	fresh := rate.NewLimiter(rate.Every(again), burst)
	l.ContainsOrAdd(key, fresh)
	known, _ := l.Get(key)
	return cmp.Or(known, fresh) // it may have been dropped meanwhile
}
