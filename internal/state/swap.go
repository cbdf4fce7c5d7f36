package state

import (
	"slices"
	"strings"
)

// Swap is the swap of a machine: all areas in use. A node has none.
type Swap struct {
	Areas []SwapArea `json:"areas"`
}

// SwapArea is a swap area in use, by its device or file.
type SwapArea struct {
	Name     string `json:"name"`
	Priority int    `json:"priority,omitempty"`
}

func (r Swap) Key() Key { return "swap:all" }

// equal ignores which negative priority an area has: the kernel chooses it (swapon(2)).
func (r Swap) equal(other Resource) bool {
	o, ok := other.(Swap)
	return ok && slices.EqualFunc(r.Areas, o.Areas, func(a, b SwapArea) bool {
		return a.Name == b.Name && (a.Priority == b.Priority || a.Priority < 0 && b.Priority < 0)
	})
}

func (r Swap) describe(c Change) string {
	if c.Undo {
		return "turn on swap on " + r.names()
	}
	is, _ := c.From.(Swap)
	return "turn off swap" + either(len(is.Areas) > 0, " on "+is.names(), "")
}

func (r Swap) show() string { return either(len(r.Areas) > 0, "on: "+r.names(), "off") }

func (r Swap) names() string {
	names := make([]string, len(r.Areas))
	for i, area := range r.Areas {
		names[i] = area.Name
	}
	return strings.Join(names, ", ")
}
