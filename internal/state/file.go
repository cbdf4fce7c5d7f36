package state

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
)

// File is a regular file, identified by its digest. Only a wanted one holds its content.
type File struct {
	Path    string      `json:"path"`
	Mode    fs.FileMode `json:"mode"`
	UID     int         `json:"uid"`
	GID     int         `json:"gid"`
	SHA256  string      `json:"sha256"`
	Content string      `json:"-"`
}

// NewFile returns a root-owned file with the given content.
func NewFile(path string, mode fs.FileMode, content string) File {
	return File{Path: path, Mode: mode, SHA256: Digest(content), Content: content}
}

// Digest returns the lower-case hex SHA-256 of content.
func Digest(content string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
}

func (r File) Key() Key { return PathKey(r.Path) }

func (r File) equal(other Resource) bool {
	o, ok := other.(File)
	return ok && r.Mode == o.Mode && r.UID == o.UID && r.GID == o.GID && r.SHA256 == o.SHA256
}

func (r File) describe(c Change) string {
	_, rewrite := c.From.(File)
	return either(c.Undo, "restore ", either(rewrite, "rewrite ", "write ")) + r.Path
}

func (r File) show() string {
	const form = "a file of mode %04o, owner %d:%d, sha256 %.12s"
	return fmt.Sprintf(form, r.Mode.Perm(), r.UID, r.GID, r.SHA256)
}
