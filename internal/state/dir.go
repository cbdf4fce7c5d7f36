package state

import (
	"fmt"
	"io/fs"
)

// Dir is a directory. One that others share (Purge false) is taken as it is when it exists, and
// removed only when empty. The undo of one that is ours alone (Purge) removes all that is below it.
type Dir struct {
	Path string      `json:"path"`
	Mode fs.FileMode `json:"mode"`
	UID  int         `json:"uid"`
	GID  int         `json:"gid"`
	// Purge claims the contents. A claim is recorded even when the directory exists already.
	Purge bool `json:"purge,omitempty"`
	// Mounts lists places below Path, relative, whose mounts a purge removes; any other stops it.
	Mounts []string `json:"mounts,omitempty"`
	// Empty tells, of an observed directory, that nothing but "lost+found" is in it, and Mounted
	// that it is a mount point. Neither is compared.
	Empty   bool `json:"empty,omitempty"`
	Mounted bool `json:"mounted,omitempty"`
}

func (r Dir) Key() Key { return PathKey(r.Path) }

// equal: a shared directory equals any directory at its path.
func (r Dir) equal(other Resource) bool {
	o, ok := other.(Dir)
	return ok && (!r.Purge && !o.Purge || r.sameMode(o))
}

func (r Dir) sameMode(o Dir) bool { return r.Mode == o.Mode && r.UID == o.UID && r.GID == o.GID }

// satisfiedBy: an owner's data disk, mounted or linked at our place, keeps its mode.
func (r Dir) satisfiedBy(seen Resource) bool {
	switch seen := seen.(type) {
	case Dir:
		return r.equal(seen) || seen.Mounted
	case Link:
		return seen.Dir != nil
	}
	return false
}

// needsUndo reports whether the undo of a claimed directory that was there before has something to
// do: contents or a mount that came since, or our mode and owner. A disk of the owner can have
// those too: containerd gives them to its root directory when it starts.
func (r Dir) needsUndo(before, seen Resource) bool {
	if !r.Purge {
		return false
	}
	was, is := LeadsTo(before), LeadsTo(seen)
	if was == nil || is == nil {
		return false
	}
	if was.Empty && !is.Empty || is.Mounted && !was.Mounted {
		return true
	}
	owners := is.Mounted || kind(before) != kind(r)
	return !was.sameMode(*is) && (!owners || r.sameMode(*is))
}

// LeadsTo returns the directory that a resource is, or that a link leads to, or nil.
func LeadsTo(r Resource) *Dir {
	switch r := r.(type) {
	case Dir:
		return &r
	case Link:
		return r.Dir
	}
	return nil
}

func (r Dir) describe(c Change) string {
	verb := either(c.From != nil && Satisfies(c.From, r), "claim", "make")
	return either(c.Undo, "restore", verb) + " directory " + r.Path
}

func (r Dir) show() string {
	text := fmt.Sprintf("a directory of mode %04o, owner %d:%d", r.Mode.Perm(), r.UID, r.GID)
	return text + either(r.Mounted, ", a mount point", "")
}
