// Package generation stores rendered nodes: configuration, facts, resources and contents, immutable
// and named by their digest. Rollback, repair and comparison never render again, so they give the
// same machine with every later version of the program.
package generation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Generation is one node, rendered, without its bindings and secrets.
type Generation struct {
	ID     string        // the SHA-256 of the rest, in lower-case hex
	Config config.Config // complete, without credentials
	// Received is the digest of the document with its secrets, independent of defaults.
	Received string
	Facts    node.Facts
	// Node lists the resources; contents hold placeholders for the bindings.
	Node       state.Desired
	NodeSHA256 string // the digest of the encoding of Node
	Origin     Origin
}

// Origin describes the origin of a generation.
type Origin struct {
	Kind  string `json:"kind"`  // file or url
	Agent string `json:"agent"` // the version of the program that made it
}

type head struct {
	Config     json.RawMessage `json:"config"`
	Received   string          `json:"received"`
	Facts      node.Facts      `json:"facts"`
	Origin     Origin          `json:"origin"`
	NodeSHA256 string          `json:"nodeSHA256"` // the digest of node.json
}

type body struct {
	Resources state.Desired     `json:"resources"`
	Contents  map[string]string `json:"contents"`
}

// New returns the generation of a rendered node.
func New(
	c config.Config, received string, f node.Facts, rendered state.Desired, o Origin,
) (Generation, error) {
	g := Generation{
		Config: c.WithoutSecrets(), Received: received, Facts: f, Node: rendered, Origin: o,
	}
	first, second, err := g.encode()
	g.ID, g.NodeSHA256 = state.Digest(string(first)), state.Digest(string(second))
	return g, err
}

// encode returns generation.json and node.json. The encoding is deterministic.
func (g Generation) encode() (first, second []byte, err error) {
	contents := make(map[string]string)
	for _, item := range g.Node {
		if file, ok := item.Resource.(state.File); ok {
			contents[file.SHA256] = file.Content
		}
	}
	second, err = json.Marshal(body{Resources: g.Node, Contents: contents})
	if err == nil {
		first, err = json.Marshal(head{ // this compacts the configuration
			Config: g.Config.Reveal(), Received: g.Received, Facts: g.Facts, Origin: g.Origin,
			NodeSHA256: state.Digest(string(second)),
		})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("internal error: %w", err)
	}
	return first, second, nil
}

// Pointer names a generation by its role on the machine.
type Pointer string

// The pointers. They are links in the store's directory.
const (
	Live     Pointer = "live"     // the running one, which kubelet's credential plugin reads
	Applied  Pointer = "applied"  // the last one proved healthy
	Previous Pointer = "previous" // the one proved healthy before that
)

// ErrDamaged reports that a generation on disk does not match its own digest, or is incomplete.
var ErrDamaged = errors.New("the generation is damaged")

// Files is the part of a machine that Reader needs.
type Files interface {
	Observe(ctx context.Context, key state.Key) (state.Resource, error)
	ReadFile(path string) ([]byte, error)
	// List names the entries of a directory.
	List(dir string) ([]string, error)
}

// Reader reads the generations below one directory of mode 0700:
//
//	generations/<id>/generation.json  configuration, facts, origin
//	generations/<id>/node.json        resources and contents
//	live, applied, previous           links to generations/<id>
type Reader struct {
	Files Files
	Dir   string      // the directory, which exists
	Known *Generation // loaded before, so that it is not decoded again; may be nil
}

// Store stores generations.
type Store struct {
	Reader
	Disk apply.Disk
}

func (s Reader) generations() string        { return path.Join(s.Dir, "generations") }
func (s Reader) path(id string) string      { return path.Join(s.generations(), id) }
func (s Reader) pointer(p Pointer) string   { return path.Join(s.Dir, string(p)) }
func (s Reader) head(id string) string      { return path.Join(s.path(id), "generation.json") }
func (s Reader) resources(id string) string { return path.Join(s.path(id), "node.json") }

// Save stores a generation. It leaves an intact one alone: this release may not know all in it.
func (s Store) Save(ctx context.Context, g Generation) error {
	if _, err := s.Load(g.ID); err == nil {
		return s.Disk.Flush()
	}
	first, second, err := g.encode()
	if err != nil {
		return err
	}
	if state.Digest(string(first)) != g.ID {
		return fmt.Errorf("cannot keep generation %.12s: %w, and a newer aks-flex-node wrote it",
			g.ID, ErrDamaged)
	}
	for _, r := range []state.Resource{
		state.Dir{Path: s.generations(), Mode: 0o700, Purge: true},
		state.Dir{Path: s.path(g.ID), Mode: 0o700, Purge: true},
		state.NewFile(s.resources(g.ID), 0o600, string(second)),
		state.NewFile(s.head(g.ID), 0o600, string(first)),
	} {
		if err := apply.Make(ctx, s.Disk, r); err != nil {
			return fmt.Errorf("cannot keep the generation: %w", err)
		}
	}
	return s.Disk.Flush()
}

// Load reads a generation and verifies it.
func (s Reader) Load(id string) (Generation, error) {
	if g := s.Known; g != nil && g.ID == id {
		return *g, errors.Join(s.read(s.head(id), id, nil), s.read(s.resources(id), g.NodeSHA256, nil))
	}
	g, err := s.bare(id)
	if err != nil {
		return Generation{}, err
	}
	var b body
	if err := s.read(s.resources(id), g.NodeSHA256, &b); err != nil {
		return Generation{}, err
	}
	for i, item := range b.Resources {
		if file, ok := item.Resource.(state.File); ok {
			if file.Content, ok = b.Contents[file.SHA256]; !ok {
				return Generation{}, fmt.Errorf("cannot read %s: %w: the content of %s is missing",
					s.resources(id), ErrDamaged, file.Path)
			}
			b.Resources[i].Resource = file
		}
	}
	g.Node = b.Resources
	return g, nil
}

// Config reads only the configuration of a generation, which suffices for a token.
func (s Reader) Config(id string) (config.Config, error) {
	g, err := s.bare(id)
	return g.Config, err
}

// read decodes a file of a generation into v, if not nil, after verifying its digest. A missing
// file is damage: a pointer led to it.
func (s Reader) read(file, digest string, v any) error {
	data, err := s.Files.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	case err == nil && state.Digest(string(data)) != digest:
		err = ErrDamaged
	case err == nil && v != nil:
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", file, err)
	}
	return nil
}

// bare reads generation.json: the generation without its resources.
func (s Reader) bare(id string) (Generation, error) {
	var h head
	if err := s.read(s.head(id), id, &h); err != nil {
		return Generation{}, err
	}
	g := Generation{ID: id, Received: h.Received, Facts: h.Facts, Origin: h.Origin}
	g.NodeSHA256 = h.NodeSHA256
	if err := json.Unmarshal(h.Config, &g.Config); err != nil {
		return Generation{}, fmt.Errorf("cannot read %s: %w", s.head(id), err)
	}
	return g, nil
}

// Target returns the id of a pointer's generation; "" if the pointer does not exist.
func (s Reader) Target(ctx context.Context, p Pointer) (string, error) {
	is, err := s.Files.Observe(ctx, state.PathKey(s.pointer(p)))
	if err != nil {
		return "", err
	}
	link, ok := is.(state.Link)
	if !ok {
		return "", nil
	}
	return path.Base(link.Target), nil
}

// Point sets a pointer to a stored generation.
func (s Store) Point(ctx context.Context, p Pointer, id string) error {
	link := state.Link{Path: s.pointer(p), Target: path.Join("generations", id)}
	if err := apply.Make(ctx, s.Disk, link); err != nil {
		return fmt.Errorf("cannot make generation %.12s the %s one: %w", id, p, err)
	}
	return s.Disk.Flush()
}

// Read returns a pointer's generation; nil if the pointer does not exist.
func (s Reader) Read(ctx context.Context, p Pointer) (*Generation, error) {
	id, err := s.Target(ctx, p)
	if err != nil || id == "" {
		return nil, err
	}
	g, err := s.Load(id)
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// IDs lists the stored generations.
func (s Reader) IDs() ([]string, error) {
	names, err := s.Files.List(s.generations())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// Collect removes every generation that is not in keep.
func (s Store) Collect(ctx context.Context, keep ...string) error {
	names, err := s.IDs()
	errs := []error{err}
	for _, id := range names {
		if !slices.Contains(keep, id) {
			errs = append(errs, apply.Writer{Disk: s.Disk}.RemoveTree(ctx, s.path(id)))
		}
	}
	return errors.Join(errs...)
}
