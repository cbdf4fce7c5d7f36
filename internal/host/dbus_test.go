package host

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
)

var errLost = errors.New("connection closed")

// bus is a connection to a systemd that knows one unit. What a test does not set works.
type bus struct {
	mu        sync.Mutex
	lost      bool
	unit      map[string]any
	known     []string          // the units that are there
	alias     map[string]string // main names of units
	result    string            // of a job; "" is never announced
	onJob     func(*bus)
	dies      bool // once a job has begun
	calls     []string
	callError error
}

func (b *bus) call(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, name)
	if b.lost {
		return errLost
	}
	return b.callError
}

func (b *bus) job(name string, ch chan<- string) (int, error) {
	if b.onJob != nil {
		b.onJob(b)
	}
	if err := b.call(name); err != nil {
		return 0, err
	}
	if b.result != "" {
		ch <- b.result
	}
	b.lost = b.dies
	return 1, nil
}

func (b *bus) Close() {}

func (b *bus) Connected() bool { return !b.lost }

func (b *bus) GetUnitPropertiesContext(context.Context, string) (map[string]any, error) {
	return maps.Clone(b.unit), b.call("unit")
}

func (b *bus) GetUnitPropertyContext(
	_ context.Context, _, name string,
) (*dbus.Property, error) {
	err := b.call("property")
	return &dbus.Property{Name: name, Value: godbus.MakeVariant(b.unit[name])}, err
}

func (b *bus) GetServicePropertyContext(
	_ context.Context, _, name string,
) (*dbus.Property, error) {
	value := map[string]uint32{"MainPID": 7, "NRestarts": 3}[name]
	return &dbus.Property{Name: name, Value: godbus.MakeVariant(value)}, b.call("service")
}

func (b *bus) StartUnitContext(_ context.Context, _, _ string, c chan<- string) (int, error) {
	return b.job("start", c)
}

func (b *bus) StopUnitContext(_ context.Context, _, _ string, c chan<- string) (int, error) {
	return b.job("stop", c)
}

func (b *bus) RestartUnitContext(_ context.Context, _, _ string, c chan<- string) (int, error) {
	return b.job("restart", c)
}

func (b *bus) EnableUnitFilesContext(
	context.Context, []string, bool, bool,
) (bool, []dbus.EnableUnitFileChange, error) {
	return true, nil, b.call("enable")
}

func (b *bus) DisableUnitFilesContext(
	context.Context, []string, bool,
) ([]dbus.DisableUnitFileChange, error) {
	return nil, b.call("disable")
}

func (b *bus) MaskUnitFilesContext(
	context.Context, []string, bool, bool,
) ([]dbus.MaskUnitFileChange, error) {
	return nil, b.call("mask")
}

func (b *bus) UnmaskUnitFilesContext(
	context.Context, []string, bool,
) ([]dbus.UnmaskUnitFileChange, error) {
	return nil, b.call("unmask")
}

func (b *bus) ReloadContext(context.Context) error { return b.call("reload") }

func (b *bus) ResetFailedUnitContext(context.Context, string) error { return b.call("reset") }

func (b *bus) ListUnitsByNamesContext(
	_ context.Context, names []string,
) (list []dbus.UnitStatus, err error) {
	for _, name := range names {
		is := dbus.UnitStatus{Name: name, LoadState: "not-found"}
		if slices.Contains(b.known, name) {
			is.LoadState = "loaded"
		}
		if main := b.alias[name]; main != "" {
			is = dbus.UnitStatus{Name: main, LoadState: "loaded"}
		}
		list = append(list, is)
	}
	return list, b.call("list")
}

func (b *bus) ListUnitsByPatternsContext(
	context.Context, []string, []string,
) ([]dbus.UnitStatus, error) {
	return []dbus.UnitStatus{
		{Name: "a.swap", LoadState: "loaded"}, {Name: "b.swap", LoadState: "not-found"},
	}, b.call("list")
}

// system is systemd over the given connections, one after the other.
func system(conns ...*bus) *DBus {
	return &DBus{
		uptime: uptime, JobTimeout: 200 * time.Millisecond, PollInterval: time.Millisecond,
		dial: func(context.Context) (dbusConn, error) {
			if len(conns) == 0 {
				return nil, errLost
			}
			next := conns[0]
			conns = conns[1:]
			return next, nil
		},
	}
}

func in(active string) map[string]any { return map[string]any{"ActiveState": active} }

// A job ends: when its end is announced, when the unit tells that it is over, and after its time
// (M5).
func TestJobsEnd(t *testing.T) {
	lose := func(b *bus) { b.lost = true }
	busy := map[string]any{"ActiveState": "active", "Job": []any{uint32(9), "/job/9"}}
	for name, tt := range map[string]struct {
		verb  Verb
		conns []*bus
		want  string // a part of the error; "" is none
	}{
		"done":   {Start, []*bus{{result: "done"}}, ""},
		"failed": {Start, []*bus{{result: "failed"}}, `systemd says "failed"`},
		"refused": {
			Restart, []*bus{{callError: errors.New("no such unit")}}, "no such unit",
		},
		"never announced, but it runs": {Start, []*bus{{unit: in("active")}}, ""},
		"never announced, and crashes": {
			Restart, []*bus{{unit: in("activating")}}, "the unit is activating",
		},
		"never announced, but it stopped": {Stop, []*bus{{unit: in("failed")}}, ""},
		"never announced, and runs on": {
			Stop, []*bus{{unit: in("active")}}, "the unit is active",
		},
		"never ends": {Restart, []*bus{{unit: busy}}, "did not end within 200ms"},
		"systemd starts again before the job": {
			Restart, []*bus{{onJob: lose}, {result: "done"}}, "",
		},
		"and again": {
			Restart, []*bus{{onJob: lose}, {onJob: lose}}, errLost.Error(),
		},
		"systemd is gone": {Stop, nil, "cannot reach systemd"},
	} {
		t.Run(name, func(t *testing.T) {
			s := system(tt.conns...)
			defer s.Close()
			err := s.Do(t.Context(), tt.verb, "x.service")
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("the error is %v, want %s", err, tt.want)
			}
		})
	}
}

// A connection that dies during a job, because systemd executes itself again, is made again, and
// the unit's state tells the result (M5).
func TestJobSurvivesReexecution(t *testing.T) {
	first, second := &bus{dies: true}, &bus{unit: in("active")}
	if err := system(first, second).Do(t.Context(), Restart, "x.service"); err != nil {
		t.Error(err)
	}
	if len(first.calls) != 1 || len(second.calls) == 0 {
		t.Errorf("the calls were %v, then %v", first.calls, second.calls)
	}
	first, second = &bus{dies: true}, &bus{unit: in("failed")}
	if err := system(first, second).Do(t.Context(), Restart, "x.service"); !errors.Is(err, errJob) {
		t.Errorf("the error is %v", err)
	}
}

// The caller's own end is not taken for the job's.
func TestJobIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := &bus{unit: map[string]any{"Job": []any{uint32(9), "/job/9"}}}
	b.onJob = func(*bus) { cancel() }
	if err := system(b).Do(ctx, Start, "x.service"); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestUnitProperties(t *testing.T) {
	s := system(&bus{unit: map[string]any{
		"UnitFileState": "enabled", "ActiveState": "active", "FragmentPath": "/x",
		"LoadState": "masked",
	}})
	got, err := s.Unit(t.Context(), "x.service", true)
	want := UnitStatus{File: "masked", Active: "active", Path: "/x", MainPID: 7, Restarts: 3}
	if err != nil || got != want {
		t.Errorf("the unit is %+v, %v; want %+v", got, err, want)
	}
	if got, err = s.Unit(t.Context(), "x.slice", true); err != nil || got.MainPID != 0 {
		t.Errorf("the slice is %+v, %v", got, err)
	}
	if _, err := system().Unit(t.Context(), "x.slice", true); !errors.Is(err, errLost) {
		t.Errorf("the error is %v", err)
	}
}

// A step of the wall clock does not change the age of a unit.
func TestUnitSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, step := range []time.Duration{0, 3 * time.Hour, -3 * time.Hour} {
			s := system(&bus{unit: map[string]any{
				"ActiveEnterTimestamp":          uint64(time.Now().Add(step).UnixMicro()),
				"ActiveEnterTimestampMonotonic": uint64(70_000_000),
			}})
			s.uptime = func() time.Duration { return 100 * time.Second }
			got, err := s.Unit(t.Context(), "x.slice", true)
			if age := time.Since(got.Since); err != nil || age != 30*time.Second {
				t.Errorf("stepped by %s, the unit is %s old, %v", step, age, err)
			}
			s.Close()
		}
	})
	if up := uptime(); up <= 0 {
		t.Errorf("the machine has been up for %s", up)
	}
}

// The files of many units cost one call, and another for each unit that is there.
func TestFragments(t *testing.T) {
	b := &bus{unit: map[string]any{"FragmentPath": "/x"}, known: []string{"x.service"},
		alias: map[string]string{"docker.service": "moby.service"}}
	names := []string{"x.service", "docker.service", "crio.service"}
	files, err := system(b).Fragments(t.Context(), names)
	want := map[string]string{"x.service": "/x", "docker.service": "/x"}
	if diff := cmp.Diff(want, files); diff != "" || err != nil {
		t.Errorf("the files are %s, %v", diff, err)
	}
	if want := []string{"list", "property", "property"}; !slices.Equal(b.calls, want) {
		t.Errorf("the calls are %v", b.calls)
	}
	if _, err := system().Fragments(t.Context(), names); !errors.Is(err, errLost) {
		t.Errorf("the error is %v", err)
	}
}

func TestCalls(t *testing.T) {
	b := &bus{}
	s := system(b)
	for _, verb := range []Verb{Enable, Disable, Mask, Unmask, Reset} {
		if err := s.Do(t.Context(), verb, "x.service"); err != nil {
			t.Error(err)
		}
	}
	const all = "enable reload disable mask reload unmask reload reset"
	if got := strings.Join(b.calls, " "); got != all {
		t.Errorf("the calls were %s", got)
	}
	names, err := s.Units(t.Context(), "*.swap")
	if err != nil || len(names) != 1 || names[0] != "a.swap" {
		t.Errorf("the units are %v, %v", names, err)
	}
	b.callError = godbus.Error{Name: "org.freedesktop.systemd1.NoSuchUnit"}
	if err := s.Do(t.Context(), Reset, "x.service"); err != nil {
		t.Errorf("a unit that is not loaded: %v", err)
	}
	if err := s.Do(t.Context(), Enable, "x.service"); err == nil {
		t.Error("an error was lost")
	}
	if _, err := s.Units(t.Context(), "*"); err == nil {
		t.Error("an error was lost")
	}
}

// The error of a failed connection to systemd has its reason alone: nothing was cancelled.
func TestNoSystemd(t *testing.T) {
	silent := func(ctx context.Context) (dbusConn, error) {
		<-ctx.Done()
		return nil, errLost
	}
	none := func(context.Context) (dbusConn, error) { return nil, errLost }
	for name, tt := range map[string]struct {
		dial          func(context.Context) (dbusConn, error)
		bound, caller time.Duration
		late          bool
	}{
		"not there":                {none, time.Minute, time.Minute, false},
		"silent":                   {silent, 10 * time.Millisecond, time.Minute, true},
		"silent, and no time left": {silent, time.Minute, 10 * time.Millisecond, true},
	} {
		s := &DBus{dial: tt.dial, CallTimeout: tt.bound}
		ctx, cancel := context.WithTimeout(t.Context(), tt.caller)
		err := s.Reload(ctx)
		cancel()
		if !errors.Is(err, errLost) || errors.Is(err, context.Canceled) ||
			errors.Is(err, context.DeadlineExceeded) != tt.late {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}
