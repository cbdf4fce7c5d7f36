package machinekey

import (
	"crypto/rand"
	"encoding/base64"
)

// bootSize is the size of the id of a boot, in bytes.
const bootSize = 12

// NewBoot makes the id of a boot of the machine. Tokens have it: two machines with one key have
// booted apart from each other.
func NewBoot() string {
	id := make([]byte, bootSize)
	rand.Read(id) //nolint:errcheck // it ends the program where it fails
	return encode(id)
}

// isBoot reports whether a text is the id of a boot.
func isBoot(text string) bool {
	id, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && len(id) == bootSize && encode(id) == text
}
