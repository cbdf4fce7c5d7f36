package identity

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// uptime returns the id of the present boot, and how long ago it began, the time that the machine
// slept included. Nobody can set that clock.
func uptime() (id string, since time.Duration) {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it, ids are all the same
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return "", 0
	}
	return strings.TrimSpace(string(data)), time.Duration(t.Nano())
}

// Claims are what a JWT says of whom it is for, and of its own time in Unix seconds (RFC 7519, 4.1).
// They are zero for a token that is no JWT.
type Claims struct {
	ObjectID string  `json:"oid"`
	Issued   float64 `json:"iat"`
	Expires  float64 `json:"exp"`
}

// ClaimsOf reads a token's claims, without a look at its signature.
func ClaimsOf(token string) (c Claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Claims{}
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(data, &c) != nil {
		return Claims{}
	}
	return c
}

// lifetime returns how long the token is good in all; ok is false where it does not say.
func (c Claims) lifetime() (life time.Duration, ok bool) {
	life = time.Duration((c.Expires - c.Issued) * float64(time.Second))
	return life, c.Issued > 0 && life > 0
}

// endedAt reports whether the token says that it is not good at a time.
func (c Claims) endedAt(at time.Time) bool {
	return c.Expires > 0 && float64(at.Unix()) >= c.Expires
}
