package host

import (
	"errors"
	"slices"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/state"
)

func TestSetUnit(t *testing.T) {
	const name = "x.service"
	unit := func(file state.Enablement, active bool) state.Unit {
		return state.Unit{Name: name, Enabled: file, Active: active}
	}
	running := UnitStatus{File: "enabled", Active: "active"}
	stopped := UnitStatus{File: "disabled", Active: "inactive"}
	for _, tt := range []struct {
		name    string
		is      UnitStatus
		to      state.Unit
		restart bool
		done    []string
	}{
		{"start", stopped, unit(state.Enabled, true), false, []string{"start", "enable"}},
		{"stop", running, unit(state.Disabled, false), false,
			[]string{"stop", "reset", "disable", "reload"}},
		{"restart", running, unit(state.Enabled, true), true, []string{"restart", "reset"}},
		{"mask", running, unit(state.Masked, false), false, []string{"stop", "reset", "mask"}},
		{
			"unmask", UnitStatus{File: "masked-runtime"}, unit("generated", true), false,
			[]string{"unmask", "start"},
		},
		{"crash loop", UnitStatus{File: "enabled", Active: "activating"},
			unit(state.Enabled, false), false, []string{"stop", "reset"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := testHost(t)
			systemd := h.Systemd.(*units)
			systemd.known[name] = tt.is
			c := state.Change{From: observe(t, h, state.UnitKey(name)), To: tt.to}
			c.Restart = tt.restart
			if err := h.Set(t.Context(), c, nil); err != nil {
				t.Fatal(err)
			}
			for i := range tt.done {
				if tt.done[i] != "reload" {
					tt.done[i] += " " + name
				}
			}
			if !slices.Equal(systemd.done, tt.done) {
				t.Errorf("it did %v, want %v", systemd.done, tt.done)
			}
			systemd.broken = errors.New("broken")
			if err := h.Set(t.Context(), c, nil); !errors.Is(err, systemd.broken) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// The undo of a unit does not reload systemd: its caller does so, once for all units.
func TestUndoUnit(t *testing.T) {
	h := testHost(t)
	systemd := h.Systemd.(*units)
	systemd.known["x.service"] = UnitStatus{File: "enabled", Active: "active"}
	to := state.Unit{Name: "x.service", Enabled: state.Disabled}
	c := state.Change{From: observe(t, h, "unit:x.service"), To: to, Undo: true}
	if err := h.Set(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"stop x.service", "reset x.service", "disable x.service"}
	if !slices.Equal(systemd.done, want) {
		t.Errorf("it did %v, want %v", systemd.done, want)
	}
}

func TestUnitErrors(t *testing.T) {
	h := testHost(t)
	if got := observe(t, h, "unit:none.service").(state.Unit); got.Enabled != state.NoUnit {
		t.Errorf("an unknown unit is %s", state.Show(got))
	}
	if err := h.Reload(t.Context()); err != nil {
		t.Error(err)
	}
	broken := errors.New("broken")
	h.Systemd.(*units).broken = broken
	if _, err := h.UnitStatus(t.Context(), "x.service"); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if _, err := h.Observe(t.Context(), "unit:x.service"); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if err := h.Reload(t.Context()); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	real := New("", h.Log)
	if lines := real.Journal(t.Context(), "no-such-unit.service", 3); len(lines) > 0 {
		t.Errorf("it has logged %q", lines)
	}
	real.Close()
}
