package arm

import (
	"net/http"
	"strconv"
	"testing"
	"time"
)

// Retry-After varies between responses, is never less than the minimum and not much more.
func TestRetryAfterIsDrawn(t *testing.T) {
	for least, most := range map[time.Duration]int{
		0: 11, RetryLater: 20, 1500 * time.Millisecond: 12, time.Minute: 90,
	} {
		drawn := map[string]bool{}
		for range 500 {
			h := http.Header{}
			SetRetryAfter(h, least)
			seconds, err := strconv.Atoi(h.Get("Retry-After"))
			if err != nil || seconds < 1 || time.Duration(seconds)*time.Second < least ||
				seconds > most {
				t.Fatalf("%s: %v", least, h)
			}
			drawn[h.Get("Retry-After")] = true
		}
		if len(drawn) < 8 {
			t.Errorf("%s: only %v", least, drawn)
		}
	}
}
