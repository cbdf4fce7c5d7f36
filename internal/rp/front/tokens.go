package front

import (
	"crypto/sha256"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// tokens caches the callers of verified tokens until these expire.
type tokens struct {
	known *lru.Cache[tokenHash, verified]
	now   func() time.Time
}

// tokenHash is the first half of a token's SHA-256: another token with the same is infeasible to
// find.
type tokenHash [sha256.Size / 2]byte

// verified is the caller of a token, and the time at which that expires.
type verified struct {
	caller Caller
	ends   time.Time
}

func newTokens(size int, now func() time.Time) tokens {
	return tokens{newCache[tokenHash, verified](size), now}
}

func hashOf(token string) tokenHash {
	sum := sha256.Sum256([]byte(token))
	return tokenHash(sum[:])
}

// caller returns the caller of a cached token that has not expired.
func (t tokens) caller(token string) (Caller, bool) {
	found, ok := t.known.Get(hashOf(token))
	return found.caller, ok && t.now().Before(found.ends)
}

// remember adds a token, and removes expired ones: at most two of the least recently used, which is
// more than are added.
func (t tokens) remember(token string, c Caller, ends time.Time) {
	t.known.Add(hashOf(token), verified{c, ends})
	for range 2 {
		if _, oldest, _ := t.known.GetOldest(); t.now().Before(oldest.ends) {
			return
		}
		t.known.RemoveOldest()
	}
}

// newCache returns a cache of the most recently used values, at most size.
func newCache[K comparable, V any](size int) *lru.Cache[K, V] {
	cache, err := lru.New[K, V](size)
	if err != nil {
		panic("internal error: " + err.Error()) // of a size below 1
	}
	return cache
}

// limiters holds the rate limiter of each caller.
type limiters struct {
	*lru.Cache[string, *rate.Limiter]
}

func newLimiters() limiters { return limiters{newCache[string, *rate.Limiter](10_000)} }

// of returns the limiter of a caller: a burst, then one request after each pause.
func (l limiters) of(key string, again time.Duration, burst int) *rate.Limiter {
	if known, ok := l.Get(key); ok {
		return known
	}
	made := rate.NewLimiter(rate.Every(again), burst)
	if known, ok, _ := l.PeekOrAdd(key, made); ok {
		return known
	}
	return made
}
