package artifact

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
)

// digest is a running hash and the value it must come to; the number of hex digits tells the
// algorithm.
type digest struct {
	hash.Hash
	want string
}

func newDigest(want string) *digest {
	if len(want) == 2*sha512.Size {
		return &digest{Hash: sha512.New(), want: want}
	}
	return &digest{Hash: sha256.New(), want: want}
}

func (d *digest) ok() bool { return d.got() == d.want }

func (d *digest) got() string { return hex.EncodeToString(d.Sum(nil)) }

func (d *digest) mismatch() *Error {
	return &Error{Cause: Digest, what: fmt.Sprintf("its digest is %s, expected %s", d.got(),
		d.want)}
}

// isDigest reports whether s is lower-case hex of SHA-256 or SHA-512; only such a name is ever an
// entry of the store.
func isDigest(s string) bool {
	if len(s) != 2*sha256.Size && len(s) != 2*sha512.Size {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
