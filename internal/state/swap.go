package state

// Swap is a swap area in use, by its device or file.
type Swap struct {
	Name     string `json:"name"`
	On       bool   `json:"on"`
	Priority int    `json:"priority,omitempty"`
}

// Key implements Resource.
func (r Swap) Key() Key { return Key("swap:" + r.Name) }

func (r Swap) kind() string { return "swap" }

// equal: the priority counts only while the area is on, and a negative one is the kernel's choice
// (swapon(2)).
func (r Swap) equal(other Resource) bool {
	o, ok := other.(Swap)
	if !ok || r.On != o.On {
		return false
	}
	return !r.On || r.Priority == o.Priority || r.Priority < 0 && o.Priority < 0
}

func (r Swap) claims() bool { return false }

func (r Swap) absence() Resource { return nil }

func (r Swap) undoForeign(Resource) treatment { return leaveAsIs }

func (r Swap) describe(Change) string { return "turn off swap on " + r.Name }

func (r Swap) describeUndo(Change) string { return "turn on swap on " + r.Name }

func (r Swap) show() string {
	if r.On {
		return "on"
	}
	return "off"
}
