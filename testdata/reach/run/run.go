// Package run is a fixture of TestReachFindsGodObject.
package run

import (
	"strings"
	"sync"

	"github.com/Azure/AKSFlexNode/testdata/reach/saved"
)

// Machine has two methods.
type Machine interface {
	Observe()
	Set()
}

// Home reaches its own method, those of State by embedding it, and those of Machine.
type Home struct {
	*saved.State
	Machine Machine
	again   Machine
	other   strings.Builder
	lock    sync.Mutex
}

func (h *Home) Open() {}

// Work reaches its own method, and those of Home and State by embedding Home. It has Home's fields
// as well, but those are one level further.
type Work struct {
	Home
	state saved.State
	plain saved.Plain
}

func (Work) Run() {}

// Small reaches its own method alone.
type Small int

func (Small) Do() {}
