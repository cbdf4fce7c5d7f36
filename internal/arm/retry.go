package arm

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// RetryLater is the least time after which a caller is to try again, unless a better one is known.
const RetryLater = 10 * time.Second

// SetRetryAfter tells a caller to try again after a time. Up to half of it more, and at least ten
// seconds, is drawn for each answer: callers that are refused together do not come back together.
func SetRetryAfter(h http.Header, least time.Duration) {
	seconds := max(1, int((least+time.Second-1)/time.Second))
	h.Set("Retry-After", strconv.Itoa(seconds+rand.IntN(max(seconds/2, 10)+1)))
}
