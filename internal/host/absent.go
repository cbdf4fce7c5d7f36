package host

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// setAbsent removes what is at a path. A directory goes with its contents only if those are ours;
// one in which others have put something remains, which is no error.
func (h *Host) setAbsent(c state.Change, to state.Absent) error {
	if _, isDir := c.From.(state.Dir); !isDir {
		return h.remove(to.Path, 0)
	}
	if ours, ok := c.Ours.(state.Dir); ok && ours.Purge {
		return h.purge(to.Path, ours.Mounts)
	}
	err := h.remove(to.Path, unix.AT_REMOVEDIR)
	for _, used := range []error{unix.ENOTEMPTY, unix.EEXIST, unix.EBUSY} {
		if errors.Is(err, used) {
			h.Log.Debug("directory left: others use it", "path", to.Path)
			return nil
		}
	}
	return err
}
