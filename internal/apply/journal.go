package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// ErrDamaged reports that the ledger on disk cannot be trusted.
var ErrDamaged = errors.New("the ledger is damaged")

// Journal keeps a ledger and the contents of replaced files on disk, below one directory of mode
// 0700, which several journals may share:
//
//	ledger.json       the ledger with its own digest
//	before/<sha256>   a file's content before it was changed
type Journal struct {
	disk      Disk
	dir, name string
	ledger    state.Ledger
	written   string // the content of the file; "" without one
}

type page struct {
	Version int             `json:"version"` // of this encoding
	SHA256  string          `json:"sha256"`
	Ledger  json.RawMessage `json:"ledger"`
}

const pageVersion = 1 // the version that this program writes and reads

// NewJournal returns an empty journal in dir; the first Save replaces an existing file called name.
func NewJournal(disk Disk, dir, name string) *Journal {
	return &Journal{disk: disk, dir: dir, name: name}
}

// OpenJournal reads a ledger, empty if its file is missing, ErrDamaged if its digest differs.
func OpenJournal(disk Disk, dir, name string) (*Journal, error) {
	j := NewJournal(disk, dir, name)
	return j, j.Read(disk)
}

// Read reads the ledger again. It does not decode an unchanged one.
func (j *Journal) Read(files Files) error {
	data, err := Records{Files: files, Dir: j.dir}.Read(j.name)
	if err != nil || j.Exists() && string(data) == j.written {
		return err
	}
	j.ledger, j.written = state.Ledger{}, ""
	if data == nil {
		return nil
	}
	var p page
	if err := json.Unmarshal(data, &p); err != nil || p.SHA256 != state.Digest(string(p.Ledger)) {
		return fmt.Errorf("cannot read %s: %w", j.path(), ErrDamaged)
	}
	if p.Version != pageVersion {
		const other = "cannot read %s: another aks-flex-node wrote it, in version %d"
		return fmt.Errorf(other, j.path(), p.Version)
	}
	if err := json.Unmarshal(p.Ledger, &j.ledger); err != nil {
		return fmt.Errorf("cannot read %s: %w: %w", j.path(), ErrDamaged, err)
	}
	j.written = string(data)
	return nil
}

// Ledger returns the ledger that is on disk.
func (j *Journal) Ledger() state.Ledger { return j.ledger }

// Exists reports whether a ledger has been written.
func (j *Journal) Exists() bool { return j.written != "" }

// Save stores the ledger durably, after the undos that it forgets. It does not write one that is
// already on disk.
func (j *Journal) Save(ctx context.Context, ledger state.Ledger) error {
	body, err := json.Marshal(ledger)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	data, _ := json.Marshal(page{pageVersion, state.Digest(string(body)), body}) // it is JSON
	text := string(data) + "\n"
	if text == j.written {
		return nil
	}
	if err := errors.Join(j.disk.Flush(), j.makeDirs(ctx)); err != nil {
		return err
	}
	err = Writer{Disk: j.disk, Dir: j.dir}.Write(ctx, j.name, text)
	if err != nil {
		return fmt.Errorf("cannot save the ledger: %w", err)
	}
	j.ledger, j.written = ledger, text
	return nil
}

// Backup stores the content of file before it is changed.
func (j *Journal) Backup(ctx context.Context, file state.File) error {
	if err := j.makeDirs(ctx); err != nil {
		return err
	}
	return j.disk.Backup(ctx, file, j.before())
}

// Content opens content stored by Backup.
func (j *Journal) Content(sha256 string) (io.ReadCloser, error) {
	return j.disk.Open(path.Join(j.before(), sha256))
}

// makeDirs creates the journal's own directories, which are in no ledger: they go with the ledger.
func (j *Journal) makeDirs(ctx context.Context) error {
	for _, dir := range []string{j.dir, j.before()} {
		if err := Make(ctx, j.disk, state.Dir{Path: dir, Mode: 0o700, Purge: true}); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) path() string   { return path.Join(j.dir, j.name) }
func (j *Journal) before() string { return path.Join(j.dir, "before") }

// Files reads a machine's files.
type Files interface {
	ReadFile(path string) ([]byte, error)
}

// Records reads the small JSON files of a directory.
type Records struct {
	Files Files
	Dir   string
}

// Writer writes the records of a directory, with mode 0600.
type Writer struct {
	Disk Disk
	Dir  string
}

// Records returns a reader of the records.
func (w Writer) Records() Records { return Records{Files: w.Disk, Dir: w.Dir} }

// Read returns the content of a record; nil if it does not exist.
func (r Records) Read(name string) ([]byte, error) {
	data, err := r.Files.ReadFile(path.Join(r.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path.Join(r.Dir, name), err)
	}
	return data, nil
}

// Load reads a record into v, and reports whether it exists.
func (r Records) Load(name string, v any) (bool, error) {
	data, err := r.Read(name)
	if data == nil || err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return false, fmt.Errorf("cannot read %s: %w", path.Join(r.Dir, name), err)
	}
	return true, nil
}

// Encode returns the encoding of a record.
func Encode(v any) (string, error) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", fmt.Errorf("internal error: %w", err)
	}
	return string(body) + "\n", nil
}

// Holds reports whether a record equals v.
func (r Records) Holds(name string, v any) (bool, error) {
	body, err := Encode(v)
	if err != nil {
		return false, err
	}
	data, err := r.Read(name)
	return string(data) == body, err
}

// Save stores a record durably, unless it is on disk already.
func (w Writer) Save(ctx context.Context, name string, v any) error {
	body, err := Encode(v)
	if err != nil {
		return err
	}
	return w.Write(ctx, name, body)
}

// Write stores a file durably, unless it is on disk already.
func (w Writer) Write(ctx context.Context, name, body string) error {
	err := Make(ctx, w.Disk, state.NewFile(path.Join(w.Dir, name), 0o600, body))
	return errors.Join(err, w.Disk.Flush())
}

// Remove deletes a record, or a directory with its contents, durably.
func (w Writer) Remove(ctx context.Context, name string) error {
	return errors.Join(w.RemoveTree(ctx, path.Join(w.Dir, name)), w.Disk.Flush())
}

// RemoveTree removes one of the agent's own paths with its contents.
func (w Writer) RemoveTree(ctx context.Context, path string) error {
	is, err := w.Disk.Observe(ctx, state.PathKey(path))
	if err != nil {
		return err
	}
	if _, gone := is.(state.Absent); gone {
		return nil
	}
	return w.Disk.Set(ctx, state.Change{
		From: is, To: state.Absent{Path: path}, Undo: true, Ours: state.Dir{Path: path, Purge: true},
	}, nil)
}

// Make creates or changes a resource, unless it is already satisfied.
func Make(ctx context.Context, disk Disk, r state.Resource) error {
	is, err := disk.Observe(ctx, r.Key())
	if err != nil || state.Satisfies(is, r) {
		return err
	}
	return disk.Set(ctx, state.Change{From: is, To: r}, nil)
}
