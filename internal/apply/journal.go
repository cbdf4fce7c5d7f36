package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// ErrDamaged tells that the ledger on disk cannot be trusted.
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
	written   string // the ledger's form on disk; "" without one
}

type page struct {
	// Version is the form's own.
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Ledger  json.RawMessage `json:"ledger"`
}

const pageVersion = 1 // the version of the pages that this program writes and reads

// NewJournal is an empty journal in dir, whatever is there; the first Save replaces the file name.
func NewJournal(disk Disk, dir, name string) *Journal {
	return &Journal{disk: disk, dir: dir, name: name}
}

// OpenJournal reads a ledger, empty without its file. One that does not match its digest is
// ErrDamaged.
func OpenJournal(disk Disk, dir, name string) (*Journal, error) {
	j, err := ReadJournal(disk, dir, name)
	j.disk = disk
	return j, err
}

// ReadJournal is OpenJournal for a reader that never saves.
func ReadJournal(files Files, dir, name string) (*Journal, error) {
	j := NewJournal(nil, dir, name)
	data, err := Records{Files: files, Dir: dir}.Read(name)
	if err != nil || data == nil {
		return j, err
	}
	return j, j.decode(data)
}

func (j *Journal) decode(data []byte) error {
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
	j.written = string(p.Ledger)
	return nil
}

// Ledger returns the ledger as it is on disk.
func (j *Journal) Ledger() state.Ledger { return j.ledger }

// Exists reports whether a ledger has been written.
func (j *Journal) Exists() bool { return j.written != "" }

// Save returns when the ledger is on disk. One that is there already is not written again.
func (j *Journal) Save(ctx context.Context, ledger state.Ledger) error {
	body, err := json.Marshal(ledger)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	if string(body) == j.written {
		return nil
	}
	sum := state.Digest(string(body))
	data, err := json.Marshal(page{pageVersion, sum, body})
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	if err := j.makeDirs(ctx); err != nil {
		return err
	}
	file := state.NewFile(j.path(), 0o600, string(data)+"\n")
	if err = j.disk.Set(ctx, state.Change{To: file}, nil); err == nil {
		err = j.disk.Flush()
	}
	if err != nil {
		return fmt.Errorf("cannot save the ledger: %w", err)
	}
	j.ledger, j.written = ledger, string(body)
	return nil
}

// Backup keeps the content of file as it is before it is changed.
func (j *Journal) Backup(ctx context.Context, file state.File) error {
	if err := j.makeDirs(ctx); err != nil {
		return err
	}
	return j.disk.Backup(ctx, file, j.before())
}

// Content opens the content that Backup kept.
func (j *Journal) Content(sha256 string) (io.ReadCloser, error) {
	return j.disk.Open(path.Join(j.before(), sha256))
}

// makeDirs makes the journal's own directories, which no ledger remembers: they go with the ledger.
func (j *Journal) makeDirs(ctx context.Context) error {
	for _, dir := range []string{j.dir, j.before()} {
		err := Make(ctx, j.disk, state.Dir{Path: dir, Mode: 0o700, Purge: true})
		if err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) path() string   { return path.Join(j.dir, j.name) }
func (j *Journal) before() string { return path.Join(j.dir, "before") }
