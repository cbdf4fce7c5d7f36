package host

import (
	"context"
	"slices"
	"time"
)

// Systemd is what we ask of systemd, in the words of its D-Bus interface
// (org.freedesktop.systemd1(5)).
type Systemd interface {
	// Unit returns the state of a unit; one that nobody knows has the file state "" and is inactive.
	Unit(ctx context.Context, name string) (UnitStatus, error)
	// Fragments returns the files of units, by name; a unit that nobody knows is left out.
	Fragments(ctx context.Context, names []string) (map[string]string, error)
	// Start, Stop and Restart return when the job is done; a job that failed is an error.
	Start(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	Restart(ctx context.Context, name string) error
	// Enable, Mask and Unmask make systemd read its unit files again; after Disable others must.
	Enable(ctx context.Context, name string) error
	Disable(ctx context.Context, name string) error
	Mask(ctx context.Context, name string) error
	Unmask(ctx context.Context, name string) error
	Reload(ctx context.Context) error
	// ResetFailed forgets that a unit has failed.
	ResetFailed(ctx context.Context, name string) error
	// Units lists the names of loaded units that match a pattern such as "*.swap".
	Units(ctx context.Context, pattern string) ([]string, error)
	Close()
}

// UnitStatus is a unit's state.
type UnitStatus struct {
	// File is the UnitFileState: enabled, disabled, masked, static, ...; "" when there is no file.
	// Active is the ActiveState: active, activating, inactive, failed, ... Path is the unit's file.
	File, Active, Path string
	// MainPID is a service's process, 0 when none runs. Restarts counts how often systemd has started
	// it again by itself (NRestarts).
	MainPID, Restarts int
	// Since is when the unit became active the last time, by the present wall clock
	// (ActiveEnterTimestampMonotonic).
	Since time.Time
}

// Running reports whether the unit runs. One that is starting, or starting again after a crash,
// counts as running: whether it works is for its health to tell.
func (s UnitStatus) Running() bool {
	return slices.Contains([]string{"active", "activating", "reloading", "refreshing"}, s.Active)
}
