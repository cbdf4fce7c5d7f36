package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// UnitStatus returns the state of a unit, with its process and restarts.
func (h *Host) UnitStatus(ctx context.Context, name string) (UnitStatus, error) {
	return h.unit(ctx, name, true)
}

func (h *Host) unit(ctx context.Context, name string, process bool) (UnitStatus, error) {
	is, err := h.Systemd.Unit(ctx, name, process)
	if err != nil {
		return is, fmt.Errorf("cannot observe %s: %w", name, err)
	}
	return is, nil
}

func (h *Host) observeUnit(ctx context.Context, name string) (state.Resource, error) {
	is, err := h.unit(ctx, name, false)
	enabled := cmp.Or(state.Enablement(is.File), state.NoUnit)
	if enabled == "masked-runtime" {
		enabled = state.Masked
	}
	return state.Unit{Name: name, Enabled: enabled, Active: is.Running()}, err
}

// setUnit starts or stops a unit and enables or disables it. It starts the unit first: enabling
// makes systemd read all units again, and units that wait for this one need not wait for that.
func (h *Host) setUnit(ctx context.Context, c state.Change, to state.Unit) error {
	from, _ := c.From.(state.Unit)
	if from.Enabled == state.Masked && to.Enabled != state.Masked {
		if err := h.job(ctx, Unmask, to.Name); err != nil {
			return err
		}
	}
	var err error
	switch {
	case c.Restart:
		err = h.jobAfterReset(ctx, Restart, to.Name)
	case to.Active && !from.Active:
		err = h.job(ctx, Start, to.Name)
		if c.Undo && err != nil && ctx.Err() == nil && strings.HasSuffix(to.Name, ".swap") {
			h.Log.Warn("swap left off: its area may be gone", "error", err)
			err = nil
		}
	case !to.Active && from.Active:
		err = h.jobAfterReset(ctx, Stop, to.Name)
	}
	switch {
	case err != nil, from.Enabled == to.Enabled:
	case to.Enabled == state.Masked:
		err = h.job(ctx, Mask, to.Name)
	case to.Enabled == state.Enabled:
		err = h.job(ctx, Enable, to.Name)
	case from.Enabled == state.Enabled:
		err = h.job(ctx, Disable, to.Name)
		if err == nil && !c.Undo { // an undo makes systemd reload once, at its end
			err = h.Reload(ctx)
		}
	}
	return err
}

// jobAfterReset runs a job and resets the unit's failures and restarts, which belong to the
// replaced state: systemd keeps the counts of a unit that it was about to restart.
func (h *Host) jobAfterReset(ctx context.Context, verb Verb, name string) error {
	if err := h.job(ctx, verb, name); err != nil {
		return err
	}
	return h.job(ctx, Reset, name)
}

// job runs one verb on a unit. An error includes the last lines of the unit's log.
func (h *Host) job(ctx context.Context, verb Verb, name string) error {
	err := h.change(string(verb)+" "+name, func() error { return h.Systemd.Do(ctx, verb, name) })
	if err == nil || ctx.Err() != nil {
		return err
	}
	if log := h.Journal(ctx, name, 8); len(log) > 0 {
		return fmt.Errorf("%w; it last logged:\n  %s", err, strings.Join(log, "\n  "))
	}
	return err
}

// Journal returns the last lines that a unit has logged; none without a journal. Lines of systemd
// about the unit are returned only if the unit's own processes have logged nothing.
func (h *Host) Journal(ctx context.Context, unit string, lines int) []string {
	if h.Root != "" {
		return nil
	}
	for _, match := range []string{"_SYSTEMD_UNIT=" + unit, "--unit=" + unit} {
		out, err := h.ask(ctx, toolLimit, "journalctl", "--no-pager", "--quiet", "--output=cat",
			"--boot", "--lines="+strconv.Itoa(lines), match)
		if err != nil {
			h.Log.Debug("cannot read the journal", "match", match, "error", err)
		}
		blank := func(s string) bool { return strings.TrimSpace(s) == "" }
		if text := slices.DeleteFunc(strings.Split(string(out), "\n"), blank); len(text) > 0 {
			return text
		}
	}
	return nil
}

// Systemd is the part of systemd that we use, in the terms of org.freedesktop.systemd1(5).
type Systemd interface {
	// Unit returns a unit's state, if process with its MainPID and Restarts; an unknown one has the
	// file state "" and is inactive.
	Unit(ctx context.Context, name string, process bool) (UnitStatus, error)
	// Fragments returns the files of units, by name; an unknown unit is left out.
	Fragments(ctx context.Context, names []string) (map[string]string, error)
	// Do runs a verb on a unit. Start, Stop and Restart return when the job is done; a failed job is
	// an error. Enable, Mask and Unmask also make systemd read its unit files again; after Disable the
	// caller must call Reload.
	Do(ctx context.Context, verb Verb, name string) error
	Reload(ctx context.Context) error
	// Units lists the names of loaded units that match a pattern such as "*.swap".
	Units(ctx context.Context, pattern string) ([]string, error)
	Close()
}

// Verb is an operation on a unit.
type Verb string

// The verbs.
const (
	Start   Verb = "start"
	Stop    Verb = "stop"
	Restart Verb = "restart"
	Enable  Verb = "enable"
	Disable Verb = "disable"
	Mask    Verb = "mask"
	Unmask  Verb = "unmask"
	Reset   Verb = "reset" // resets the failed state
)

// UnitStatus is a unit's state.
type UnitStatus struct {
	// File is the UnitFileState: enabled, disabled, masked, static, ...; "" without a file. Active is
	// the ActiveState: active, activating, inactive, failed, ... Path is the unit's file.
	File, Active, Path string
	// MainPID is the process of a service; 0 if none runs. Restarts counts the automatic restarts
	// (NRestarts).
	MainPID, Restarts int
	Job               bool // a job is waiting or running for the unit
	Begun             bool // it has begun to start since the boot (InactiveExitTimestampMonotonic)
	// Since is when it became active, by the current wall clock (ActiveEnterTimestampMonotonic).
	Since time.Time
}

// Running reports whether the unit runs. One that is starting, or restarting after a crash, counts
// as running: its health decides whether it works.
func (s UnitStatus) Running() bool {
	return slices.Contains([]string{"active", "activating", "reloading", "refreshing"}, s.Active)
}
