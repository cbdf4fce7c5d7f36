package state

// Unknown is an observation that could not be made. It is neither drift nor absence: an API server
// that does not answer is not a missing Node. It is never wanted or remembered.
type Unknown struct {
	Of  Key
	Why string
	// Err is why observing it failed; nil where that was not tried.
	Err error
}

func (r Unknown) Key() Key { return r.Of }

func (r Unknown) equal(Resource) bool { return false }

func (r Unknown) describe(Change) string { return "observe " + r.Of.Name() }

func (r Unknown) show() string { return "unknown: " + r.Why }
