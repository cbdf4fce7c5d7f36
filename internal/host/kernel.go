package host

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Kernel is what is no plain file below the root: modules, swap, and what running programs leave
// behind.
type Kernel interface {
	// LoadModule and UnloadModule change the running kernel.
	LoadModule(ctx context.Context, name string) error
	UnloadModule(name string) error
	SwapOff(name string) error
	SwapOn(name string, priority int) error
	// Find lists what there is of a residue, sorted; Clear removes what is in found.
	Find(ctx context.Context, r state.Residue) ([]string, error)
	Clear(ctx context.Context, r state.Residue, found []string) error
}

// linux is the running kernel.
type linux struct{}
