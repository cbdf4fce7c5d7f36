package state

import (
	"slices"
	"strings"
)

// Swap is all swap of a machine: the areas in use. A node has none.
type Swap struct {
	Areas []SwapArea `json:"areas"`
}

// SwapArea is a swap area in use, by its device or file.
type SwapArea struct {
	Name     string `json:"name"`
	Priority int    `json:"priority,omitempty"`
}

// Key implements Resource.
func (r Swap) Key() Key { return "swap:all" }

func (r Swap) kind() string { return "swap" }

// equal: a negative priority is the kernel's choice (swapon(2)).
func (r Swap) equal(other Resource) bool {
	o, ok := other.(Swap)
	return ok && slices.EqualFunc(r.Areas, o.Areas, func(a, b SwapArea) bool {
		return a.Name == b.Name && (a.Priority == b.Priority || a.Priority < 0 && b.Priority < 0)
	})
}

func (r Swap) claims() bool { return false }

func (r Swap) absence() Resource { return nil }

// undoForeign: areas are only turned on, and those of others stay.
func (r Swap) undoForeign(Resource) treatment { return undoAnyway }

func (r Swap) describe(c Change) string {
	if is, ok := c.From.(Swap); ok && len(is.Areas) > 0 {
		return "turn off swap on " + is.names()
	}
	return "turn off swap"
}

func (r Swap) describeUndo(Change) string { return "turn on swap on " + r.names() }

func (r Swap) show() string {
	if len(r.Areas) > 0 {
		return "on: " + r.names()
	}
	return "off"
}

func (r Swap) names() string {
	names := make([]string, len(r.Areas))
	for i, area := range r.Areas {
		names[i] = area.Name
	}
	return strings.Join(names, ", ")
}
