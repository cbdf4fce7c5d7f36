package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Watch tells of changes to files, and of units that begin or end, until ctx ends. It tells no more
// than that something has happened: whoever is told has to look. What cannot be watched is logged,
// and the rest is watched all the same.
func (h *Host) Watch(ctx context.Context, files, units []string, hint func(what string)) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { h.watchUnits(ctx, units, hint) })
	if err := h.watchFiles(ctx, files, hint); err != nil {
		h.Log.Warn("changes of files are only found by the next check", "error",
			fmt.Errorf("cannot watch files: %w", err))
	}
}

// What happens to a directory's entries that is told of (inotify(7)): a file that was written,
// given another mode or owner, made, removed or renamed; and the directory itself.
const watchedFor = unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_DELETE |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF |
	unix.IN_ONLYDIR

// watches are the directories that are watched.
type watches struct {
	host *Host
	conn syscall.RawConn // lends the descriptor of inotify(7) while it is open
	// dirs are those to be watched, at is where those that are there are, by watch: links may lead
	// from several names to one.
	dirs []string
	at   map[int32][]string
}

// watchFiles watches the directories of files, as far as they are there. One that is made later, or
// again, is watched from the next event on.
func (h *Host) watchFiles(ctx context.Context, files []string, hint func(what string)) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	defer context.AfterFunc(ctx, func() { events.Close() })()
	conn, err := events.SyscallConn()
	if err != nil {
		return err
	}
	w := watches{host: h, conn: conn, at: map[int32][]string{}}
	for _, file := range files {
		w.dirs = append(w.dirs, path.Dir(file))
	}
	slices.Sort(w.dirs)
	w.dirs = slices.Compact(w.dirs)
	buffer := make([]byte, 16<<10)
	for {
		err := conn.Control(w.add)
		n := 0
		if err == nil {
			n, err = events.Read(buffer)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, what := range w.happened(buffer[:n], files) {
			hint(what)
		}
	}
}

// add watches the directories that are there and are not watched. One that cannot be watched, as
// when the kernel's limit is reached, is logged and left out.
func (w *watches) add(fd uintptr) {
	watched := slices.Concat(slices.Collect(maps.Values(w.at))...)
	w.dirs = slices.DeleteFunc(w.dirs, func(dir string) bool {
		if slices.Contains(watched, dir) {
			return false
		}
		watch, err := unix.InotifyAddWatch(int(fd), w.host.path(dir), watchedFor)
		if err == nil {
			at := int32(watch) //nolint:gosec // it is an int32 in the kernel
			w.at[at] = append(w.at[at], dir)
		}
		if except(err, unix.ENOENT, unix.ENOTDIR) == nil {
			return false
		}
		w.host.Log.Warn("changes of some files are only found by the next check", "below", dir,
			"error", fmt.Errorf("cannot watch %s: %w", dir, err))
		return true
	})
}

// happened are the paths that events are about: files that are watched, directories that are gone,
// and "" for events that were lost. What has gone elsewhere is watched no more.
func (w *watches) happened(events []byte, files []string) []string {
	var paths []string
	for len(events) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&events[0])) //nolint:gosec // the kernel's own form
		end := unix.SizeofInotifyEvent + int(e.Len)
		name := strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00")
		switch {
		case e.Mask&unix.IN_Q_OVERFLOW != 0:
			paths = append(paths, "")
		case e.Mask&unix.IN_IGNORED != 0:
			delete(w.at, e.Wd)
		case e.Mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0:
			paths = append(paths, w.at[e.Wd]...)
			_ = w.conn.Control(func(fd uintptr) { // one that is closed, or is gone, watches nothing
				_, _ = unix.InotifyRmWatch(int(fd), uint32(e.Wd)) //nolint:gosec // as the kernel has it
			})
		default:
			for _, dir := range w.at[e.Wd] {
				if full := path.Join(dir, name); slices.Contains(files, full) {
					paths = append(paths, full)
				}
			}
		}
		events = events[end:]
	}
	return slices.Compact(paths)
}

// The pauses between two connections to the message bus.
const (
	busFirst = 5 * time.Second
	busMost  = 5 * time.Minute
)

// watchUnits watches units over the message bus, which tells only of those: systemd's own socket
// tells whoever is connected of all units, and on a node those of pods come and go.
func (h *Host) watchUnits(ctx context.Context, units []string, hint func(what string)) {
	for pauses := (wait.Backoff{Base: busFirst, Max: busMost}); ; {
		began := time.Now()
		err := h.listen(ctx, units, hint)
		if ctx.Err() != nil {
			return
		}
		h.Log.Debug("units are not watched for now", "error", err)
		if time.Since(began) > busMost {
			pauses.Reset()
		}
		if !wait.Sleep(ctx, pauses.Next()) {
			return
		}
	}
}

// listen hears of units until the connection ends.
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

// isUnitChange reports whether a signal is about a unit's activity.
func isUnitChange(s *godbus.Signal) bool {
	if len(s.Body) < 2 {
		return false
	}
	changed, _ := s.Body[1].(map[string]godbus.Variant)
	_, activity := changed["ActiveState"]
	return activity
}
