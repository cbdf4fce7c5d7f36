package state

// Absent is the absence of anything at Path.
type Absent struct {
	Path string `json:"path"`
}

// Key implements Resource.
func (r Absent) Key() Key { return PathKey(r.Path) }

func (r Absent) kind() string { return "absent" }

func (r Absent) equal(other Resource) bool { return r == other }

func (r Absent) claims() bool { return false }

func (r Absent) absence() Resource { return nil }

// undoForeign: somebody has removed our thing, so nothing is lost when the former one comes back.
func (r Absent) undoForeign(Resource) treatment { return undoAnyway }

func (r Absent) describe(Change) string { return "remove " + r.Path }

func (r Absent) describeUndo(Change) string { return "remove " + r.Path }

func (r Absent) show() string { return "absent" }
