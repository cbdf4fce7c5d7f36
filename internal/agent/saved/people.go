package saved

import (
	"context"
	"errors"

	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// The files for people and scripts, which are written from the records and never read, but for
// JoinFile, whose presence tells a machine that has lost its ledger. SetApplied writes VersionFile.
const (
	currentFile  = "current-config.json"
	appliedFile  = "applied-config.json"
	previousFile = "previous-config.json"
	JoinFile     = "join-state.json"
	VersionFile  = "config-version.txt"
)

// JoinState describes the machine's membership of its cluster.
type JoinState struct {
	NodeName string `json:"nodeName"`
	Server   string `json:"server"`
	CASHA256 string `json:"caSHA256"`
	// Joined reports that the Node was Ready once.
	Joined bool `json:"joined"`
}

// shown is a configuration as people and scripts read it, without its secrets.
type shown struct {
	Generation string `json:"generation,omitempty"`
	Config     any    `json:"config"`
}

func (s *Store) publish(ctx context.Context, name string, g *generation.Generation) error {
	if g == nil {
		return s.Remove(ctx, name)
	}
	return s.Save(ctx, name, shown{Generation: g.ID, Config: g.Config})
}

// PublishCurrent writes the wanted configuration, unless KeepBundle has written a delivered one.
func (s *Store) PublishCurrent(ctx context.Context, g *generation.Generation) error {
	if bundle, err := s.Writer.Records().Bundle(); bundle != nil || err != nil {
		return err
	}
	return s.publish(ctx, currentFile, g)
}

// PublishApplied writes the configurations that were proved last and before that.
func (s *Store) PublishApplied(ctx context.Context) error {
	previous, err := s.Generations.Read(ctx, generation.Previous)
	if err != nil {
		return err
	}
	return errors.Join(s.PublishCurrent(ctx, s.Applied), s.publish(ctx, appliedFile, s.Applied),
		s.publish(ctx, previousFile, previous), s.PublishJoin(ctx, s.Applied.Config.Agent.NodeName))
}

// PublishJoin writes what the machine is to its cluster.
func (s *Store) PublishJoin(ctx context.Context, nodeName string) error {
	return s.Save(ctx, JoinFile, JoinState{
		NodeName: nodeName, Server: s.Bindings.Server,
		CASHA256: state.Digest(s.Bindings.CA), Joined: s.Bindings.Joined,
	})
}
