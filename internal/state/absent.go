package state

// Absent is the absence of anything at Path.
type Absent struct {
	Path string `json:"path"`
}

func (r Absent) Key() Key { return PathKey(r.Path) }

func (r Absent) describe(Change) string { return "remove " + r.Path }

func (r Absent) show() string { return "absent" }
