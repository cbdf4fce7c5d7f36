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

// ErrDamaged tells that the ledger on disk cannot be trusted.
var ErrDamaged = errors.New("the ledger is damaged")

// Journal keeps the ledger and the contents of replaced files on disk, below one directory of mode 0700:
//
//	ledger.json       the ledger with its own digest
//	before/<sha256>   a file's content before us
type Journal struct {
	host   Host
	dir    string
	ledger state.Ledger
	exists bool
}

// page is the form of ledger.json.
type page struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Ledger  json.RawMessage `json:"ledger"`
}

// NewJournal is an empty journal in dir, whatever is there; the first Save replaces it.
func NewJournal(host Host, dir string) *Journal { return &Journal{host: host, dir: dir} }

// OpenJournal reads the ledger in dir; where there is none it is empty. It writes nothing. A ledger that does not match its
// own digest gives ErrDamaged.
func OpenJournal(host Host, dir string) (*Journal, error) {
	j := NewJournal(host, dir)
	data, err := host.ReadFile(j.path())
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the ledger: %w", err)
	}
	var p page
	if err := json.Unmarshal(data, &p); err != nil || p.SHA256 != state.Digest(string(p.Ledger)) {
		return nil, fmt.Errorf("cannot read %s: %w", j.path(), ErrDamaged)
	}
	if p.Version != 1 {
		return nil, fmt.Errorf("cannot read %s: it is of version %d, written by a newer aks-flex-node", j.path(), p.Version)
	}
	if err := json.Unmarshal(p.Ledger, &j.ledger); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w: %w", j.path(), ErrDamaged, err)
	}
	j.exists = true
	return j, nil
}

// Ledger returns the ledger as it is on disk.
func (j *Journal) Ledger() state.Ledger { return j.ledger }

// Exists tells whether a ledger has been written.
func (j *Journal) Exists() bool { return j.exists }

// Save writes the ledger and returns when it is on disk.
func (j *Journal) Save(ctx context.Context, ledger state.Ledger) error {
	body, err := json.Marshal(ledger)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	data, err := json.Marshal(page{Version: 1, SHA256: state.Digest(string(body)), Ledger: body})
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	if err := j.makeDirs(ctx); err != nil {
		return err
	}
	file := state.NewFile(j.path(), 0o600, string(data)+"\n")
	if err := j.host.Set(ctx, state.Change{To: file}, nil); err != nil {
		return fmt.Errorf("cannot save the ledger: %w", err)
	}
	if err := j.host.Flush(); err != nil {
		return fmt.Errorf("cannot save the ledger: %w", err)
	}
	j.ledger, j.exists = ledger, true
	return nil
}

// Backup keeps the content of file, as it is before us.
func (j *Journal) Backup(ctx context.Context, file state.File) error {
	if err := j.makeDirs(ctx); err != nil {
		return err
	}
	return j.host.Backup(ctx, file, j.before())
}

// Content opens the content that Backup kept.
func (j *Journal) Content(sha256 string) (io.ReadCloser, error) {
	return j.host.Open(path.Join(j.before(), sha256))
}

// makeDirs makes the journal's own directories, which no ledger remembers: they go with the ledger.
func (j *Journal) makeDirs(ctx context.Context) error {
	for _, dir := range []string{j.dir, j.before()} {
		want := state.Dir{Path: dir, Mode: 0o700, Purge: true}
		is, err := j.host.Observe(ctx, want.Key())
		if err != nil {
			return err
		}
		if state.Equal(is, want) {
			continue
		}
		if err := j.host.Set(ctx, state.Change{From: is, To: want}, nil); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) path() string   { return path.Join(j.dir, "ledger.json") }
func (j *Journal) before() string { return path.Join(j.dir, "before") }
