package host

import (
	"context"
	"net/netip"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Kernel is what is no plain file below the root: modules, swap, what running programs leave
// behind, and the firewall's chains.
type Kernel interface {
	LoadModule(ctx context.Context, name string) error
	UnloadModule(name string) error
	SwapOff(name string) error
	SwapOn(name string, priority int) error
	// Find lists what there is of a residue, sorted; Clear removes what is in found.
	Find(ctx context.Context, r state.Residue) ([]string, error)
	Clear(ctx context.Context, r state.Residue, found []string) error
	// Filters lists the base chains that filter packets. Filter is one of them, or the zero value
	// where there is none.
	Filters() ([]Filter, error)
	Filter(family, table, name string) (Filter, error)
	// Rules counts the rules of an nftables table, such as "inet kube-proxy"; 0 without it.
	Rules(table string) (int, error)
	// LoadTable replaces a table by that of its file.
	LoadTable(ctx context.Context, to state.Table) error
	// DialFrom connects to a TCP port from a network namespace, and ends the connection.
	DialFrom(ctx context.Context, namespace string, to netip.AddrPort) error
	// ClockSynchronized reports whether somebody has told the kernel that its clock is right.
	ClockSynchronized() (bool, error)
}

// linux is the running kernel, the Kernel of a real machine.
type linux struct{ beat func() }

// run runs a program of the machine, which reads input.
func (l linux) run(ctx context.Context, input string, argv ...string) ([]byte, error) {
	run := (*User)(nil).program(strings.NewReader(input))
	return bounded(ctx, toolLimit, l.beat, run, argv)
}
