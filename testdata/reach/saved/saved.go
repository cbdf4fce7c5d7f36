// Package saved is a fixture of TestReachFindsGodObject.
package saved

// State has four methods.
type State struct{}

func (*State) Read()         {}
func (*State) Write()        {}
func (*State) lock()         {}
func (State) String() string { return "" }

// Plain has no methods.
type Plain struct{ S *State }
