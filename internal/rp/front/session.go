package front

import (
	"cmp"
	"crypto/sha256"
	"time"
	"unique"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// tokenHash is the first half of a token's SHA-256: no one finds another token with the same.
type tokenHash [sha256.Size / 2]byte

// remember adds a token to those that have been verified, and forgets tokens that have ended: of those
// that were used longest ago two at most, which is more than there are added.
func remember[T interface{ ended(now time.Time) bool }](
	known *lru.Cache[tokenHash, T], hash tokenHash, s T, now time.Time,
) {
	known.Add(hash, s)
	for range 2 {
		if _, oldest, _ := known.GetOldest(); !oldest.ended(now) {
			return
		}
		known.RemoveOldest()
	}
}

// newCache keeps so many values, of those used last.
func newCache[K comparable, V any](size int) *lru.Cache[K, V] {
	cache, err := lru.New[K, V](size)
	if err != nil {
		panic("internal error: " + err.Error()) // of a size below 1
	}
	return cache
}

// limiters limit what each caller may ask.
type limiters struct {
	*lru.Cache[string, *rate.Limiter]
}

func newLimiters() limiters { return limiters{newCache[string, *rate.Limiter](10_000)} }

// of returns the limiter of a caller, which begins with a burst.
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

// ended reports whether a token holds no longer.
func (s session) ended(now time.Time) bool { return now.Unix() >= s.expires }

func hashOf(token string) tokenHash {
	sum := sha256.Sum256([]byte(token))
	return tokenHash(sum[:])
}

// session is a token that has been verified. There is one for each agent, so it is small: ids as
// numbers, what is alike in many kept once, what few have elsewhere, and the end in Unix seconds.
type session struct {
	object, app uuid.UUID
	alike       unique.Handle[alike]
	expires     int64
	rest        *rest // nil of most
}

// alike holds the values that many callers have in common.
type alike struct{ tenantID, kind string }

// rest holds the values that not every caller has: a name that is not the application's id, the
// resource of a managed identity, and ids that are not written as the others are.
type rest struct{ objectID, appID, name, machineID string }

func newSession(c Caller, expires time.Time) session {
	s := session{alike: unique.Make(alike{c.TenantID, c.Type}), expires: expires.Unix()}
	r := rest{machineID: c.MachineID}
	s.object, r.objectID = cutID(c.ObjectID)
	s.app, r.appID = cutID(c.AppID)
	if c.Name != c.AppID {
		r.name = c.Name
	}
	if r != (rest{}) {
		s.rest = &r
	}
	return s
}

// cutID is an id as a number, or, if it is not written as numbers are, as it is.
func cutID(id string) (uuid.UUID, string) {
	if n, err := uuid.Parse(id); err == nil && n != uuid.Nil && n.String() == id {
		return n, ""
	}
	return uuid.Nil, id
}

func joinID(n uuid.UUID, id string) string {
	if n != uuid.Nil {
		return n.String()
	}
	return id
}

func (s session) caller() Caller {
	var r rest
	if s.rest != nil {
		r = *s.rest
	}
	both := s.alike.Value()
	c := Caller{
		TenantID: both.tenantID, Type: both.kind, MachineID: r.machineID, Name: r.name,
		ObjectID: joinID(s.object, r.objectID), AppID: joinID(s.app, r.appID),
	}
	c.Name = cmp.Or(c.Name, c.AppID)
	return c
}
