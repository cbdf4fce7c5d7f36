package host

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/fsnotify/fsnotify"
	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Watch calls hint for changes to files and for units that start or stop, until ctx ends. A hint
// only means that something has happened: the caller has to look. Things that cannot be watched are
// logged, and the rest is watched all the same.
func (h *Host) Watch(ctx context.Context, files, units []string, hint func(what string)) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { h.watchUnits(ctx, units, hint) })
	if err := h.watchFiles(ctx, files, hint); err != nil {
		h.Log.Warn("changes of files are found only by the next check", "error",
			fmt.Errorf("cannot watch files: %w", err))
	}
}

// watchFiles watches the directories of files, those created later from the next event on. It calls
// hint with a changed file, with a directory that is gone, or with "" if events were lost.
func (h *Host) watchFiles(ctx context.Context, files []string, hint func(what string)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	var dirs []string
	for _, file := range files {
		if dir := path.Dir(file); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	at := make(map[string]string) // the last real paths: links may lead from several names to one
	for {
		dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !h.watchDir(w, dir, at) })
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
			hint("")
		case e := <-w.Events:
			gone := e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)
			for _, what := range slices.Concat(files, dirs) {
				dir, known := at[path.Dir(what)]
				if known && e.Name == path.Join(dir, path.Base(what)) || gone && e.Name == at[what] {
					hint(what)
				}
			}
		}
	}
}

// watchDir watches a directory if it exists, and records its real path in at. It reports false, and
// logs a warning, if the directory cannot be watched, as when the kernel's limit is reached.
func (h *Host) watchDir(w *fsnotify.Watcher, dir string, at map[string]string) bool {
	real, err := filepath.EvalSymlinks(h.path(dir))
	if err == nil {
		err = w.Add(real)
	}
	if err == nil {
		at[dir] = real
	}
	if except(err, unix.ENOENT, unix.ENOTDIR) == nil {
		return true
	}
	h.Log.Warn("changes of some files are found only by the next check", "below", dir,
		"error", fmt.Errorf("cannot watch %s: %w", dir, err))
	return false
}

// The pauses between connections to the message bus.
const busFirst, maxBusPause = 5 * time.Second, 5 * time.Minute

// watchUnits watches units over the message bus, which reports only those units: systemd's own
// socket reports all units to each client, and on a node those of pods come and go.
func (h *Host) watchUnits(ctx context.Context, units []string, hint func(what string)) {
	for pauses := (wait.Backoff{Base: busFirst, Max: maxBusPause}); ; {
		began := time.Now()
		err := h.listen(ctx, units, hint)
		if ctx.Err() != nil {
			return
		}
		h.Log.Debug("units are temporarily not watched", "error", err)
		if time.Since(began) > maxBusPause {
			pauses.Reset()
		}
		if !wait.Sleep(ctx, pauses.Next()) {
			return
		}
	}
}

func (h *Host) listen(ctx context.Context, units []string, hint func(what string)) error {
	const bus, root = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
	conn, err := godbus.ConnectSystemBus(godbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("cannot connect to the message bus: %w", err)
	}
	defer conn.Close()
	signals := make(chan *godbus.Signal, 64)
	conn.Signal(signals)
	for _, unit := range units {
		err := conn.AddMatchSignalContext(ctx, godbus.WithMatchSender(bus),
			godbus.WithMatchObjectPath(godbus.ObjectPath(root+"/unit/"+systemd.PathBusEscape(unit))),
			godbus.WithMatchInterface("org.freedesktop.DBus.Properties"))
		if err != nil {
			return fmt.Errorf("cannot watch %s: %w", unit, err)
		}
	}
	manager := conn.Object(bus, root)
	if err := manager.CallWithContext(ctx, bus+".Manager.Subscribe", 0).Err; err != nil {
		return fmt.Errorf("cannot watch units: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case signal, ok := <-signals:
			if !ok {
				return errors.New("the message bus has ended the connection")
			}
			if isUnitChange(signal) {
				hint(path.Base(string(signal.Path)))
			}
		}
	}
}

func isUnitChange(s *godbus.Signal) bool {
	if len(s.Body) < 2 {
		return false
	}
	changed, _ := s.Body[1].(map[string]godbus.Variant)
	_, activity := changed["ActiveState"]
	return activity
}
