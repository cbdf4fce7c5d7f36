// Package generation keeps nodes as they were rendered: a generation is a configuration, the facts
// it was rendered with, and the resulting resources with their contents. It is immutable and named
// by the digest of its content. Rolling back, repairing and comparing use the kept bytes and never
// render again, so they give the same machine under every later version of the program.
package generation

import (
	"encoding/json"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Generation is one node, rendered, without its bindings and secrets.
type Generation struct {
	ID     string        // the SHA-256 of the rest, in lower-case hex
	Config config.Config // complete and holds no credential
	// Received is the digest of the document with its secrets, whatever defaults are today.
	Received string
	Facts    node.Facts
	// Node lists the resources; contents hold placeholders for the bindings.
	Node   state.Desired
	Origin Origin
}

// Origin tells where a generation came from.
type Origin struct {
	// Kind is file or url.
	Kind string `json:"kind"`
	// Agent is the version of the program that rendered it.
	Agent string `json:"agent"`
}

// head is generation.json.
type head struct {
	Config   json.RawMessage `json:"config"`
	Received string          `json:"received"`
	Facts    node.Facts      `json:"facts"`
	Origin   Origin          `json:"origin"`
	// NodeSHA256 is the digest of node.json.
	NodeSHA256 string `json:"nodeSHA256"`
}

// body is node.json: the resources, and the contents of their files by digest.
type body struct {
	Resources state.Desired     `json:"resources"`
	Contents  map[string]string `json:"contents"`
}

// New makes a generation of a rendered node.
func New(
	c config.Config, received string, f node.Facts, rendered state.Desired, o Origin,
) (Generation, error) {
	g := Generation{
		Config: c.WithoutSecrets(), Received: received, Facts: f, Node: rendered, Origin: o,
	}
	first, _, err := g.encode()
	g.ID = state.Digest(string(first))
	return g, err
}

// encode returns generation.json and node.json. The same generation always gives the same bytes.
func (g Generation) encode() (first, second []byte, err error) {
	contents := make(map[string]string)
	for _, item := range g.Node {
		if file, ok := item.Resource.(state.File); ok {
			contents[file.SHA256] = file.Content
		}
	}
	second, err = json.Marshal(body{Resources: g.Node, Contents: contents})
	if err != nil {
		return nil, nil, fmt.Errorf("internal error: %w", err)
	}
	c, err := g.Config.Reveal()
	if err != nil {
		return nil, nil, err
	}
	first, err = json.Marshal(head{ // which makes the configuration compact
		Config: c, Received: g.Received, Facts: g.Facts, Origin: g.Origin,
		NodeSHA256: state.Digest(string(second)),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("internal error: %w", err)
	}
	return first, second, nil
}
