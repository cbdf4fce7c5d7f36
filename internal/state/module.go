package state

// Module is a kernel module; one that is built in counts as loaded.
type Module struct {
	Name   string `json:"name"`
	Loaded bool   `json:"loaded"`
}

// Key implements Resource.
func (r Module) Key() Key { return Key("module:" + r.Name) }

func (r Module) kind() string { return "module" }

func (r Module) equal(other Resource) bool { return r == other }

func (r Module) claims() bool { return false }

func (r Module) absence() Resource { return nil }

func (r Module) undoForeign(Resource) treatment { return leaveAsIs }

func (r Module) describe(Change) string { return "load module " + r.Name }

func (r Module) describeUndo(Change) string { return "unload module " + r.Name }

func (r Module) show() string {
	if r.Loaded {
		return "loaded"
	}
	return "not loaded"
}
