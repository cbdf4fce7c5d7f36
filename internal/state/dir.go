package state

import (
	"fmt"
	"io/fs"
)

// Dir is a directory. A shared one (Purge false) is used as it is if it exists, and removed only if
// empty. The undo of one that is ours alone (Purge) removes everything below it.
type Dir struct {
	Path string      `json:"path"`
	Mode fs.FileMode `json:"mode"`
	UID  int         `json:"uid"`
	GID  int         `json:"gid"`
	// Purge claims the contents. A claim is recorded even if the directory already exists.
	Purge bool `json:"purge,omitempty"`
	// Mounts lists places relative to Path whose mounts a purge removes; any other mount stops it.
	Mounts  []string `json:"mounts,omitempty"`
	Empty   bool     `json:"empty,omitempty"`   // observed: nothing but "lost+found"; not compared
	Mounted bool     `json:"mounted,omitempty"` // observed: a mount point; not compared
}

func (r Dir) Key() Key { return PathKey(r.Path) }

// equal treats a shared directory as equal to any directory at its path.
func (r Dir) equal(other Resource) bool {
	o, ok := other.(Dir)
	return ok && (!r.Purge && !o.Purge || r.sameMode(o))
}

func (r Dir) sameMode(o Dir) bool { return r.Mode == o.Mode && r.UID == o.UID && r.GID == o.GID }

// satisfiedBy accepts an owner's data disk, mounted or linked at our place, with its own mode.
func (r Dir) satisfiedBy(seen Resource) bool {
	switch seen := seen.(type) {
	case Dir:
		return r.equal(seen) || seen.Mounted
	case Link:
		return seen.Dir != nil
	}
	return false
}

// needsUndo reports whether a claimed directory that existed before needs an undo: it has new
// contents or a new mount, or our mode and owner. The owner's disk can have these too: containerd
// sets them on its root directory when it starts.
func (r Dir) needsUndo(before, seen Resource) bool {
	was, is := LeadsTo(before), LeadsTo(seen)
	if !r.Purge || was == nil || is == nil {
		return false
	}
	if was.Empty && !is.Empty || is.Mounted && !was.Mounted {
		return true
	}
	owners := is.Mounted || kind(before) != kind(r)
	return !was.sameMode(*is) && (!owners || r.sameMode(*is))
}

// LeadsTo returns the directory that a resource is or links to, or nil.
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
