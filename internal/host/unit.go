package host

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Systemd is what we ask of systemd, in the words of its D-Bus interface (org.freedesktop.systemd1(5)).
type Systemd interface {
	// Unit returns the state of a unit; one that nobody knows has the file state "" and is inactive.
	Unit(ctx context.Context, name string) (UnitStatus, error)
	// Start, Stop and Restart return when the job is done; a job that failed is an error.
	Start(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	Restart(ctx context.Context, name string) error
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
	// File is the UnitFileState: enabled, disabled, masked, static, generated, ...; "" when there is no file.
	File string
	// Active is the ActiveState: active, activating, inactive, failed, ...
	Active string
	// Path is the unit's file.
	Path string
}

func (h *Host) observeUnit(ctx context.Context, name string) (state.Resource, error) {
	is, err := h.Systemd.Unit(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("cannot look at %s: %w", name, err)
	}
	return unit(name, is), nil
}

// unit reads a status. A service that is starting, or starting again after a crash, counts as running: whether it works is for
// its health to tell.
func unit(name string, is UnitStatus) state.Unit {
	u := state.Unit{Name: name, Enabled: state.Enablement(is.File)}
	switch is.File {
	case "":
		u.Enabled = state.NoUnit
	case "masked-runtime":
		u.Enabled = state.Masked
	}
	u.Active = slices.Contains([]string{"active", "activating", "reloading", "refreshing"}, is.Active)
	return u
}

// setUnit starts or stops a unit and enables or disables it. It runs before it is enabled: whoever waits for it need not wait
// for systemd to read all units again.
func (h *Host) setUnit(ctx context.Context, c state.Change, to state.Unit) error {
	from, _ := c.From.(state.Unit)
	if from.Enabled == state.Masked && to.Enabled != state.Masked {
		if err := h.job(ctx, "unmask", to.Name, h.Systemd.Unmask); err != nil {
			return err
		}
	}
	var err error
	switch {
	case c.Restart:
		err = h.job(ctx, "restart", to.Name, h.Systemd.Restart)
	case to.Active && !from.Active:
		err = h.job(ctx, "start", to.Name, h.Systemd.Start)
	case !to.Active && from.Active:
		err = h.stop(ctx, to.Name)
	}
	if err != nil {
		return err
	}
	return h.enablement(ctx, from, to)
}

func (h *Host) enablement(ctx context.Context, from, to state.Unit) error {
	switch {
	case from.Enabled == to.Enabled:
		return nil
	case to.Enabled == state.Masked:
		return h.job(ctx, "mask", to.Name, h.Systemd.Mask)
	case to.Enabled == state.Enabled:
		return h.job(ctx, "enable", to.Name, h.Systemd.Enable)
	case from.Enabled == state.Enabled:
		return h.job(ctx, "disable", to.Name, h.Systemd.Disable)
	}
	return nil
}

func (h *Host) stop(ctx context.Context, name string) error {
	if err := h.job(ctx, "stop", name, h.Systemd.Stop); err != nil {
		return err
	}
	return h.Systemd.ResetFailed(ctx, name)
}

// job does one thing with a unit. When it fails, what the unit has logged last says why.
func (h *Host) job(ctx context.Context, verb, name string, do func(context.Context, string) error) error {
	if err := h.touch("%s %s", verb, name); err != nil {
		return err
	}
	err := do(ctx, name)
	if err == nil {
		return nil
	}
	if log := h.Journal(ctx, name, 8); len(log) > 0 && ctx.Err() == nil {
		return fmt.Errorf("cannot %s %s: %w; its last words:\n  %s", verb, name, err, strings.Join(log, "\n  "))
	}
	return fmt.Errorf("cannot %s %s: %w", verb, name, err)
}

// Journal returns the last lines that a unit has logged; none when there is no journal.
func (h *Host) Journal(ctx context.Context, unit string, lines int) []string {
	if h.Root != "" {
		return nil
	}
	out, err := exec.CommandContext(ctx, "journalctl", "--no-pager", "--quiet", "--output=cat", "--unit="+unit, "--lines="+strconv.Itoa(lines)).Output()
	if err != nil {
		h.Log.Debug("cannot read the journal", "unit", unit, "error", err)
		return nil
	}
	return slices.DeleteFunc(strings.Split(string(out), "\n"), func(s string) bool { return strings.TrimSpace(s) == "" })
}

// errJob is a systemd job that did not end as "done".
var errJob = errors.New("the job failed")
