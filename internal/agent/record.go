package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Generation is a node that was or shall be: its configuration and the facts that it was rendered with. Two of them are kept,
// so that drift, repair and rollback need neither network nor the user's file.
type Generation struct {
	Config json.RawMessage `json:"config"`
	Facts  node.Facts      `json:"facts"`
}

// JoinState is what the machine is to its cluster.
type JoinState struct {
	NodeName string `json:"nodeName"`
	Server   string `json:"server"`
	CASHA256 string `json:"caSHA256"`
	// Joined tells that the Node was Ready once.
	Joined bool `json:"joined"`
}

// records are the files of the agent's state directory beside the ledger.
type records struct {
	host Machine
	dir  string
}

// The files.
const (
	currentFile  = "current-config.json"  // latest received
	appliedFile  = "applied-config.json"  // proved healthy
	previousFile = "previous-config.json" // the applied one before it
	joinFile     = "join-state.json"
)

func (r records) path(name string) string { return path.Join(r.dir, name) }

// load reads a record into v; false when there is none.
func (r records) load(name string, v any) (bool, error) {
	data, err := r.host.ReadFile(r.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read %s: %w", r.path(name), err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return false, fmt.Errorf("cannot read %s: %w", r.path(name), err)
	}
	return true, nil
}

// save writes a record, unless it is on disk already.
func (r records) save(ctx context.Context, name string, v any) error {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	want := state.NewFile(r.path(name), 0o600, string(body)+"\n")
	is, err := r.host.Observe(ctx, want.Key())
	if err != nil {
		return err
	}
	if state.Equal(is, want) {
		return nil
	}
	return errors.Join(r.host.Set(ctx, state.Change{From: is, To: want}, nil), r.host.Flush())
}

// remove deletes a record.
func (r records) remove(ctx context.Context, name string) error {
	is, err := r.host.Observe(ctx, state.PathKey(r.path(name)))
	if err != nil {
		return err
	}
	if _, ok := is.(state.Absent); ok {
		return nil
	}
	return r.host.Set(ctx, state.Change{From: is, To: state.Absent{Path: r.path(name)}, Undo: true}, nil)
}

// applied returns the generation that was proved healthy, and its configuration.
func (r records) applied() (Generation, config.Config, bool, error) { return r.generation(appliedFile) }

func (r records) generation(name string) (Generation, config.Config, bool, error) {
	var g Generation
	ok, err := r.load(name, &g)
	if !ok || err != nil {
		return g, config.Config{}, false, err
	}
	c, err := g.parse()
	if err != nil {
		return g, c, false, fmt.Errorf("cannot read %s: %w", r.path(name), err)
	}
	return g, c, true, nil
}

func (g Generation) parse() (config.Config, error) {
	var c config.Config
	err := json.Unmarshal(g.Config, &c)
	return c, err
}

// sameConfig tells whether two generations have the same configuration, however it is laid out.
func (g Generation) sameConfig(other Generation) bool {
	return bytes.Equal(compact(g.Config), compact(other.Config))
}

func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return raw
	}
	return b.Bytes()
}

// newGeneration remembers a node without its bootstrap token: that one is good for one join, and is not kept.
func newGeneration(c config.Config, f node.Facts) (Generation, error) {
	body, err := c.WithoutBootstrapToken().Reveal()
	return Generation{Config: body, Facts: f}, err
}
