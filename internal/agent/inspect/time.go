package inspect

import "time"

// Stamp is the time as it is recorded.
func Stamp() time.Time { return Now().UTC().Truncate(time.Millisecond) }

// Now is the time; under testing/synctest it is the bubble's.
func Now() time.Time { return time.Now() }
