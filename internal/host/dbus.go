package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

var errJob = errors.New("the job failed")

// DBus talks to systemd over its private socket, which works for root without a message bus. It
// connects at the first call, and again after losing the connection: systemd drops it when it
// re-executes itself, as on an update of its package. Every call ends within a bounded time.
type DBus struct {
	JobTimeout   time.Duration // limits a job; 0 is two minutes
	CallTimeout  time.Duration // limits any other call; 0 is 30 seconds
	PollInterval time.Duration // of a unit while a job runs; 0 is three seconds

	dial   func(ctx context.Context) (dbusConn, error)
	uptime func() time.Duration // returns the clock of systemd's time stamps

	mu   sync.Mutex
	conn dbusConn
	stop context.CancelFunc
}

// dbusConn has the methods of *dbus.Conn that DBus uses.
type dbusConn interface {
	Close()
	Connected() bool
	GetUnitPropertiesContext(ctx context.Context, unit string) (map[string]any, error)
	GetServicePropertyContext(ctx context.Context, service, name string) (*dbus.Property, error)
	GetUnitPropertyContext(ctx context.Context, unit, name string) (*dbus.Property, error)
	StartUnitContext(ctx context.Context, name, mode string, ch chan<- string) (int, error)
	StopUnitContext(ctx context.Context, name, mode string, ch chan<- string) (int, error)
	RestartUnitContext(ctx context.Context, name, mode string, ch chan<- string) (int, error)
	EnableUnitFilesContext(ctx context.Context, files []string, runtime, force bool) (
		bool, []dbus.EnableUnitFileChange, error)
	DisableUnitFilesContext(ctx context.Context, files []string, runtime bool) (
		[]dbus.DisableUnitFileChange, error)
	MaskUnitFilesContext(ctx context.Context, files []string, runtime, force bool) (
		[]dbus.MaskUnitFileChange, error)
	UnmaskUnitFilesContext(ctx context.Context, files []string, runtime bool) (
		[]dbus.UnmaskUnitFileChange, error)
	ReloadContext(ctx context.Context) error
	ResetFailedUnitContext(ctx context.Context, name string) error
	ListUnitsByNamesContext(ctx context.Context, names []string) ([]dbus.UnitStatus, error)
	ListUnitsByPatternsContext(ctx context.Context, states, patterns []string) (
		[]dbus.UnitStatus, error)
}

// connect returns the connection, or a new one if that was lost. ctx bounds the dialling.
func (s *DBus) connect(ctx context.Context) (dbusConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && s.conn.Connected() {
		return s.conn, nil
	}
	s.close()
	life, stop := context.WithCancel(context.Background()) // of the connection
	dialling := context.AfterFunc(ctx, stop)
	conn, err := s.dial(life)
	if inTime := dialling(); !inTime || err != nil {
		stop()
		return nil, fmt.Errorf("cannot reach systemd: %w", errors.Join(err, ctx.Err()))
	}
	s.conn, s.stop = conn, stop
	return conn, nil
}

func dialSystemd(ctx context.Context) (dbusConn, error) {
	if conn, err := dbus.NewSystemdConnectionContext(ctx); err == nil {
		return conn, nil
	}
	return dbus.NewSystemConnectionContext(ctx)
}

// Close ends the connection.
func (s *DBus) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
}

func (s *DBus) close() {
	if s.conn != nil {
		s.conn.Close()
		s.stop()
		s.conn = nil
	}
}

// call makes an idempotent call: it repeats it on a new connection if the first is lost meanwhile.
func (s *DBus) call(ctx context.Context, do func(context.Context, dbusConn) error) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.CallTimeout, 30*time.Second))
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	if err = do(ctx, conn); err == nil || conn.Connected() || ctx.Err() != nil {
		return err
	}
	if conn, err = s.connect(ctx); err != nil {
		return err
	}
	return do(ctx, conn)
}

func (s *DBus) Unit(ctx context.Context, name string, process bool) (UnitStatus, error) {
	var unit map[string]any
	err := s.call(ctx, func(ctx context.Context, conn dbusConn) (err error) {
		if unit, err = conn.GetUnitPropertiesContext(ctx, name); err != nil {
			return err
		}
		path, _ := unit["FragmentPath"].(string)
		if !process || path == "" || !strings.HasSuffix(name, ".service") {
			return nil
		}
		// Reading all three hundred properties of a service would cost systemd milliseconds.
		for _, number := range []string{"MainPID", "NRestarts"} {
			p, err := conn.GetServicePropertyContext(ctx, name, number)
			if err != nil {
				return err
			}
			unit[number] = p.Value.Value()
		}
		return nil
	})
	if err != nil {
		return UnitStatus{}, err
	}
	now := time.Now()
	return UnitStatusOf(unit, now, s.uptime()), nil
}

// UnitStatusOf returns the state of a unit by its properties on the bus. now and up are one moment
// by the wall clock and by CLOCK_MONOTONIC. It does not use systemd's wall-clock time stamps, as
// the clock may have been stepped since.
func UnitStatusOf(unit map[string]any, now time.Time, up time.Duration) UnitStatus {
	text := func(key string) string { s, _ := unit[key].(string); return s }
	number := func(key string) int { n, _ := unit[key].(uint32); return int(n) }
	is := UnitStatus{
		File: text("UnitFileState"), Active: text("ActiveState"), Path: text("FragmentPath"),
		MainPID: number("MainPID"), Restarts: number("NRestarts"),
	}
	if text("LoadState") == "masked" {
		is.File = "masked"
	}
	if entered, _ := unit["ActiveEnterTimestampMonotonic"].(uint64); entered > 0 {
		is.Since = now.Add(time.Duration(entered)*time.Microsecond - up)
	}
	left, _ := unit["InactiveExitTimestampMonotonic"].(uint64)
	is.Begun = left > 0
	if pair, ok := unit["Job"].([]any); ok && len(pair) > 0 { // (id, object path); 0 is none
		id, _ := pair[0].(uint32)
		is.Job = id != 0
	}
	return is
}

// uptime returns CLOCK_MONOTONIC, which excludes the time in suspend.
func uptime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // each kernel has this clock
	return time.Duration(t.Nano())
}

// Fragments makes one call for all units, as most are not installed.
func (s *DBus) Fragments(ctx context.Context, names []string) (map[string]string, error) {
	files := make(map[string]string)
	err := s.call(ctx, func(ctx context.Context, conn dbusConn) error {
		list, err := conn.ListUnitsByNamesContext(ctx, names)
		if err != nil {
			return err
		}
		if len(list) != len(names) { // systemd leaves out invalid names
			return fmt.Errorf("systemd tells of %d units of %s", len(list), names)
		}
		for i, u := range list { // in the order of names; an alias has another name
			if u.LoadState == "not-found" {
				continue
			}
			p, err := conn.GetUnitPropertyContext(ctx, u.Name, "FragmentPath")
			if err != nil {
				return err
			}
			if file, _ := p.Value.Value().(string); file != "" {
				files[names[i]] = file
			}
		}
		return nil
	})
	return files, err
}

// jobs holds the verbs that start a job. Its result is sent to the channel.
var jobs = map[Verb]func(dbusConn, context.Context, string, string, chan<- string) (int, error){
	Start:   dbusConn.StartUnitContext,
	Stop:    dbusConn.StopUnitContext,
	Restart: dbusConn.RestartUnitContext,
}

// done reports whether a unit looks as it should after the job of a verb.
func (is UnitStatus) done(verb Verb) bool {
	if verb == Stop {
		return is.Active == "inactive" || is.Active == "failed"
	}
	return slices.Contains([]string{"active", "reloading", "refreshing"}, is.Active)
}

// job starts a job and waits until it is done. Its end is announced on the connection; as that may
// be lost, the unit is polled too: once it has no job left, its state is the result.
func (s *DBus) job(ctx context.Context, verb Verb, name string) error {
	limit := cmp.Or(s.JobTimeout, 2*time.Minute)
	within, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("%w: it did not end within %s", errJob, limit))
	defer cancel()
	result := make(chan string, 1)
	err := s.call(within, func(ctx context.Context, conn dbusConn) error {
		_, err := jobs[verb](conn, ctx, name, "replace", result)
		return err
	})
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return context.Cause(within)
	}
	if err != nil {
		return err
	}
	tick := time.NewTicker(cmp.Or(s.PollInterval, 3*time.Second))
	defer tick.Stop()
	for silent := 0; ; {
		select {
		case r := <-result:
			if r != "done" {
				return fmt.Errorf("%w: systemd says %q", errJob, r)
			}
			return nil
		case <-within.Done():
			return context.Cause(within)
		case <-tick.C:
		}
		is, err := s.Unit(within, name, false)
		if err != nil || is.Job {
			silent = 0
			continue // systemd may be starting it again
		}
		if silent++; silent < 2 {
			continue // the announcement may be on its way
		}
		if !is.done(verb) {
			return fmt.Errorf("%w: the unit is %s", errJob, is.Active)
		}
		return nil
	}
}

// Do also makes systemd read changed unit files, as systemctl does.
func (s *DBus) Do(ctx context.Context, verb Verb, name string) error {
	if jobs[verb] != nil {
		return s.job(ctx, verb, name)
	}
	err := s.call(ctx, func(ctx context.Context, c dbusConn) (err error) {
		switch files := []string{name}; verb {
		case Enable:
			_, _, err = c.EnableUnitFilesContext(ctx, files, false, true)
		case Disable:
			_, err = c.DisableUnitFilesContext(ctx, files, false)
		case Mask:
			_, err = c.MaskUnitFilesContext(ctx, files, false, true)
		case Unmask:
			_, err = c.UnmaskUnitFilesContext(ctx, files, false)
		case Reset:
			err = c.ResetFailedUnitContext(ctx, name)
		}
		return err
	})
	const unknown = "org.freedesktop.systemd1.NoSuchUnit"
	e, failed := errors.AsType[godbus.Error](err)
	switch {
	case verb == Reset && failed && e.Name == unknown:
		return nil
	case err != nil, verb == Disable, verb == Reset:
		return err
	}
	return s.Reload(ctx)
}

func (s *DBus) Reload(ctx context.Context) error {
	return s.call(ctx, func(ctx context.Context, c dbusConn) error {
		return c.ReloadContext(ctx)
	})
}

func (s *DBus) Units(ctx context.Context, pattern string) ([]string, error) {
	var list []dbus.UnitStatus
	err := s.call(ctx, func(ctx context.Context, c dbusConn) (err error) {
		list, err = c.ListUnitsByPatternsContext(ctx, nil, []string{pattern})
		return err
	})
	var names []string
	for _, u := range list {
		if ok, _ := path.Match(pattern, u.Name); ok && u.LoadState != "not-found" {
			names = append(names, u.Name)
		}
	}
	return names, err
}
