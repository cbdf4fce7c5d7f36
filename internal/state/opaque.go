package state

import "encoding/json"

// Opaque is a remembered or wanted resource of a kind that this release does not know, because a
// newer one wrote it. It is kept as it was written, and neither observed nor changed.
type Opaque struct {
	Kind string
	// Raw is the resource's JSON.
	Raw json.RawMessage
}

// Key has the form of the thing in it, as nobody knows what it is called.
func (r Opaque) Key() Key { return Key("opaque:" + r.Kind + ":" + Digest(string(r.Raw))) }

// equal: the key holds the digest of all that is known.
func (r Opaque) equal(other Resource) bool {
	_, ok := other.(Opaque)
	return ok
}

func (r Opaque) describe(c Change) string { return either(c.Undo, "restore a ", "set a ") + r.Kind }

func (r Opaque) show() string { return "a " + r.Kind + ", which a newer release wrote" }

func (r Opaque) MarshalJSON() ([]byte, error) { return r.Raw, nil }
