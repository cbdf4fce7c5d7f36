package host

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// dbusSystemd is systemd over its private socket, which works for root without a message bus. The connection is made at the
// first call.
type dbusSystemd struct {
	mu   sync.Mutex
	conn *dbus.Conn
}

func (s *dbusSystemd) connect(ctx context.Context) (*dbus.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && s.conn.Connected() {
		return s.conn, nil
	}
	conn, err := dbus.NewSystemdConnectionContext(context.WithoutCancel(ctx))
	if err != nil {
		conn, err = dbus.NewSystemConnectionContext(context.WithoutCancel(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot reach systemd: %w", err)
	}
	s.conn = conn
	return conn, nil
}

// Close ends the connection.
func (s *dbusSystemd) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// Unit implements Systemd.
func (s *dbusSystemd) Unit(ctx context.Context, name string) (UnitStatus, error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return UnitStatus{}, err
	}
	properties, err := conn.GetUnitPropertiesContext(ctx, name)
	if err != nil {
		return UnitStatus{}, err
	}
	text := func(key string) string { s, _ := properties[key].(string); return s }
	status := UnitStatus{File: text("UnitFileState"), Active: text("ActiveState"), Path: text("FragmentPath")}
	if text("LoadState") == "masked" {
		status.File = "masked"
	}
	return status, nil
}

// Start implements Systemd.
func (s *dbusSystemd) Start(ctx context.Context, name string) error {
	return s.job(ctx, name, (*dbus.Conn).StartUnitContext)
}

// Stop implements Systemd.
func (s *dbusSystemd) Stop(ctx context.Context, name string) error {
	return s.job(ctx, name, (*dbus.Conn).StopUnitContext)
}

// Restart implements Systemd.
func (s *dbusSystemd) Restart(ctx context.Context, name string) error {
	return s.job(ctx, name, (*dbus.Conn).RestartUnitContext)
}

func (s *dbusSystemd) job(ctx context.Context, name string, start func(*dbus.Conn, context.Context, string, string, chan<- string) (int, error)) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	result := make(chan string, 1)
	if _, err := start(conn, ctx, name, "replace", result); err != nil {
		return err
	}
	select {
	case r := <-result:
		if r != "done" {
			return fmt.Errorf("%w: systemd says %q", errJob, r)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Enable implements Systemd.
func (s *dbusSystemd) Enable(ctx context.Context, name string) error {
	return s.files(ctx, func(c *dbus.Conn) error {
		_, _, err := c.EnableUnitFilesContext(ctx, []string{name}, false, true)
		return err
	})
}

// Disable implements Systemd.
func (s *dbusSystemd) Disable(ctx context.Context, name string) error {
	return s.files(ctx, func(c *dbus.Conn) error {
		_, err := c.DisableUnitFilesContext(ctx, []string{name}, false)
		return err
	})
}

// Mask implements Systemd.
func (s *dbusSystemd) Mask(ctx context.Context, name string) error {
	return s.files(ctx, func(c *dbus.Conn) error {
		_, err := c.MaskUnitFilesContext(ctx, []string{name}, false, true)
		return err
	})
}

// Unmask implements Systemd.
func (s *dbusSystemd) Unmask(ctx context.Context, name string) error {
	return s.files(ctx, func(c *dbus.Conn) error {
		_, err := c.UnmaskUnitFilesContext(ctx, []string{name}, false)
		return err
	})
}

// files changes unit files and makes systemd see it, as systemctl does.
func (s *dbusSystemd) files(ctx context.Context, change func(*dbus.Conn) error) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	if err := change(conn); err != nil {
		return err
	}
	return conn.ReloadContext(ctx)
}

// Reload implements Systemd.
func (s *dbusSystemd) Reload(ctx context.Context) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	return conn.ReloadContext(ctx)
}

// ResetFailed implements Systemd.
func (s *dbusSystemd) ResetFailed(ctx context.Context, name string) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	err = conn.ResetFailedUnitContext(ctx, name)
	if e, ok := errors.AsType[godbus.Error](err); ok && e.Name == "org.freedesktop.systemd1.NoSuchUnit" {
		return nil
	}
	return err
}

// Units implements Systemd.
func (s *dbusSystemd) Units(ctx context.Context, pattern string) ([]string, error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	list, err := conn.ListUnitsByPatternsContext(ctx, nil, []string{pattern})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, u := range list {
		if ok, _ := path.Match(pattern, u.Name); ok && !strings.HasPrefix(u.LoadState, "not-found") {
			names = append(names, u.Name)
		}
	}
	return names, nil
}
