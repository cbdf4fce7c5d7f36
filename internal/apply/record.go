package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Files are a machine's files, to be read.
type Files interface {
	ReadFile(path string) ([]byte, error)
}

// Records are the small JSON files of a directory, to be read.
type Records struct {
	Files Files
	Dir   string
}

// Writer writes the records of a directory, all 0600.
type Writer struct {
	Disk Disk
	Dir  string
}

// Records returns the records to be read.
func (w Writer) Records() Records { return Records{Files: w.Disk, Dir: w.Dir} }

// Read returns the content of a record; nil without one.
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

// Encode returns the form of a record.
func Encode(v any) (string, error) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", fmt.Errorf("internal error: %w", err)
	}
	return string(body) + "\n", nil
}

// Holds reports whether a record is v.
func (r Records) Holds(name string, v any) (bool, error) {
	body, err := Encode(v)
	if err != nil {
		return false, err
	}
	data, err := r.Read(name)
	return string(data) == body, err
}

// Save writes a record, unless it is on disk already.
func (w Writer) Save(ctx context.Context, name string, v any) error {
	body, err := Encode(v)
	if err != nil {
		return err
	}
	return w.Write(ctx, name, body)
}

// Write writes a file, unless it is on disk already, and returns when it is durable.
func (w Writer) Write(ctx context.Context, name, body string) error {
	err := Make(ctx, w.Disk, state.NewFile(path.Join(w.Dir, name), 0o600, body))
	return errors.Join(err, w.Disk.Flush())
}

// Remove deletes a record, or a directory with all that is in it, and returns when that is durable.
func (w Writer) Remove(ctx context.Context, name string) error {
	return errors.Join(w.RemoveTree(ctx, path.Join(w.Dir, name)), w.Disk.Flush())
}

// RemoveTree removes what is at a path of the agent's own, with all that is in it.
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

// Make makes a resource so, unless it is.
func Make(ctx context.Context, disk Disk, r state.Resource) error {
	is, err := disk.Observe(ctx, r.Key())
	if err != nil || state.Satisfies(is, r) {
		return err
	}
	return disk.Set(ctx, state.Change{From: is, To: r}, nil)
}
