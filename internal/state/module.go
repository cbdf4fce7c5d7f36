package state

// Module is a kernel module; a built-in one counts as loaded.
type Module struct {
	Name   string `json:"name"`
	Loaded bool   `json:"loaded"`
}

func (r Module) Key() Key { return Key("module:" + r.Name) }

func (r Module) describe(c Change) string {
	return either(c.Undo, "unload", "load") + " module " + r.Name
}

func (r Module) show() string { return either(r.Loaded, "loaded", "not loaded") }
