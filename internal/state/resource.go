// Package state is the pure middle of the engine: what a host is made of (resources), what it was before us (the ledger), and
// what has to change (Diff). It reads no file, asks no clock and touches nothing; node renders into it, host observes into it,
// apply carries out its plans.
package state

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"slices"
)

// Key identifies a thing on a host, "kind:name". Everything that can be at a path shares the kind "path", so that a file, a
// directory, a link and nothing at all are values of the same key.
type Key string

// Resource is one thing on a host. An observed thing, a wanted thing and a remembered thing are the same type, so comparison is
// equality, undo is a change, and absence is a value. The set is closed: Absent, Dir, File, Link, Unit, Sysctl, Module, Swap
// and Residue.
type Resource interface {
	Key() Key
	sealed()
}

// Absent is the absence of anything at Path.
type Absent struct {
	Path string `json:"path"`
}

// Dir is a directory. A directory that others share (Purge false) is made when missing and otherwise taken as it is; it is
// removed only when empty. A directory that is ours alone says Purge: its undoing removes all that is below it.
type Dir struct {
	Path string      `json:"path"`
	Mode fs.FileMode `json:"mode"`
	UID  int         `json:"uid"`
	GID  int         `json:"gid"`
	// Purge claims the contents. A claim is recorded even when the directory exists already.
	Purge bool `json:"purge,omitempty"`
	// Mounts lists places below Path, relative ("." is Path itself), where mounts may be that a purge takes away; any other
	// mount stops the purge.
	Mounts []string `json:"mounts,omitempty"`
	// Empty tells, of an observed directory, that nothing is in it. It takes no part in comparison.
	Empty bool `json:"empty,omitempty"`
}

// File is a regular file, known by its digest. A wanted file carries its content; an observed or remembered one does not.
type File struct {
	Path   string      `json:"path"`
	Mode   fs.FileMode `json:"mode"`
	UID    int         `json:"uid"`
	GID    int         `json:"gid"`
	SHA256 string      `json:"sha256"`
	// Secret keeps the content out of every plan and log.
	Secret  bool   `json:"secret,omitempty"`
	Content string `json:"-"`
}

// NewFile is a root-owned file with the given content.
func NewFile(path string, mode fs.FileMode, content string) File {
	return File{Path: path, Mode: mode, SHA256: Digest(content), Content: content}
}

// Digest is the lower-case hex SHA-256 of content.
func Digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// Link is a symbolic link.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Enablement is the state of a unit file as systemd calls it (systemctl(1), is-enabled).
type Enablement string

// The enablements that are wanted or restored; an observed unit may have others, such as static or generated.
const (
	Enabled  Enablement = "enabled"
	Disabled Enablement = "disabled"
	Masked   Enablement = "masked"
	NoUnit   Enablement = "not-found"
)

// Unit is a systemd unit: whether it starts at boot and whether it runs now. Its unit file is a File of its own.
type Unit struct {
	Name    string     `json:"name"`
	Enabled Enablement `json:"enabled"`
	Active  bool       `json:"active"`
}

// Sysctl is a kernel parameter's value at run time, by its dotted name.
type Sysctl struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Module is a kernel module; one that is built in counts as loaded.
type Module struct {
	Name   string `json:"name"`
	Loaded bool   `json:"loaded"`
}

// Swap is a swap area in use, by its device or file.
type Swap struct {
	Name     string `json:"name"`
	On       bool   `json:"on"`
	Priority int    `json:"priority,omitempty"`
}

// ResidueKind says what sort of thing is left behind.
type ResidueKind string

// What the programs that we install make while they run.
const (
	Interfaces ResidueKind = "interface" // network interfaces, Match is the exact name
	Chains     ResidueKind = "chain"     // iptables chains with their rules and jumps, Match is a prefix of the chain's name
	Cgroups    ResidueKind = "cgroup"    // control groups at the root of the hierarchy, Match is the slice's name
	Processes  ResidueKind = "process"   // processes, Match is a directory: those whose executable lies below it
	Mounts     ResidueKind = "mount"     // mounts, Match is a prefix of the mount point
)

// Residue is what the programs that we start leave behind outside our files: it is never wanted or unwanted, only remembered as
// it was before us, so that undoing takes away what came since.
type Residue struct {
	Kind  ResidueKind `json:"kind"`
	Match string      `json:"match"`
	Found []string    `json:"found,omitempty"`
}

// Key implements Resource.
func (r Absent) Key() Key  { return PathKey(r.Path) }
func (r Dir) Key() Key     { return PathKey(r.Path) }
func (r File) Key() Key    { return PathKey(r.Path) }
func (r Link) Key() Key    { return PathKey(r.Path) }
func (r Unit) Key() Key    { return UnitKey(r.Name) }
func (r Sysctl) Key() Key  { return Key("sysctl:" + r.Name) }
func (r Module) Key() Key  { return Key("module:" + r.Name) }
func (r Swap) Key() Key    { return Key("swap:" + r.Name) }
func (r Residue) Key() Key { return Key("residue:" + string(r.Kind) + ":" + r.Match) }

// PathKey is the key of whatever is at path.
func PathKey(path string) Key { return Key("path:" + path) }

// UnitKey is the key of a systemd unit.
func UnitKey(name string) Key { return Key("unit:" + name) }

func (Absent) sealed()  {}
func (Dir) sealed()     {}
func (File) sealed()    {}
func (Link) sealed()    {}
func (Unit) sealed()    {}
func (Sysctl) sealed()  {}
func (Module) sealed()  {}
func (Swap) sealed()    {}
func (Residue) sealed() {}

// Equal tells whether two resources are the same state of the same thing. A shared directory equals any directory at its path.
func Equal(a, b Resource) bool {
	if a.Key() != b.Key() {
		return false
	}
	switch a := a.(type) {
	case Dir:
		b, ok := b.(Dir)
		return ok && equalDirs(a, b)
	case File:
		b, ok := b.(File)
		return ok && a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && a.SHA256 == b.SHA256
	case Residue:
		b, ok := b.(Residue)
		return ok && slices.Equal(a.Found, b.Found)
	default:
		return a == b
	}
}

func equalDirs(a, b Dir) bool {
	if !a.Purge && !b.Purge {
		return true
	}
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID
}

// claims tells whether a wanted resource must be in the ledger even when nothing has to change: its undoing takes away what
// came into being since.
func claims(r Resource) bool {
	switch r := r.(type) {
	case Dir:
		return r.Purge
	case Residue:
		return true
	default:
		return false
	}
}
