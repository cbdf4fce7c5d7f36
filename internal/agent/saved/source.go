package saved

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/policy"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// BundleFile is the configuration that a provider has delivered last, with its secrets.
const BundleFile = StateDir + "/bundle.json"

// Records are the records below StateDir, to be read.
type Records struct{ apply.Records }

// Writer writes the records below StateDir.
type Writer struct{ apply.Writer }

// NewRecords returns the records of a machine.
func NewRecords(files apply.Files) Records {
	return Records{apply.Records{Files: files, Dir: StateDir}}
}

// NewWriter returns what writes the records of a machine.
func NewWriter(disk apply.Disk) Writer { return Writer{apply.Writer{Disk: disk, Dir: StateDir}} }

// Records returns the records to be read.
func (w Writer) Records() Records { return NewRecords(w.Disk) }

// Source is where the bundle came from.
type Source struct {
	// URLSHA256 recognizes the configuration URL, which is kept nowhere.
	URLSHA256 string `json:"urlSHA256"`
	// Given is the version that a person has delivered with it.
	Given     string          `json:"given,omitempty"`
	Applied   config.Resource `json:"applied,omitzero"`   // the version that the node runs on
	AppliedAt time.Time       `json:"appliedAt,omitzero"` // since when
	// Forgotten are the versions that a person has had forgotten: no other goes back from them.
	Forgotten []config.Resource `json:"forgotten,omitempty"`
}

// Source reads where the bundle came from; zero without a bundle.
func (r Records) Source() (from Source, err error) {
	_, err = r.Load(SourceFile, &from)
	return from, err
}

// SetApplied writes which version the node runs on, and since when; zero for none.
func (w Writer) SetApplied(ctx context.Context, resource config.Resource, at time.Time) error {
	from, err := w.Records().Source()
	if err != nil || from.Applied == resource {
		return err
	}
	if resource.ConfigVersion == "" {
		err = w.Remove(ctx, VersionFile)
	} else {
		err = w.Write(ctx, VersionFile, resource.ConfigVersion+"\n")
	}
	if err != nil {
		return err
	}
	from.Applied, from.AppliedAt = resource, at
	return w.Save(ctx, SourceFile, from)
}

// SetURL writes which URL the bundle came from.
func (w Writer) SetURL(ctx context.Context, digest string) error {
	from, err := w.Records().Source()
	if err != nil {
		return err
	}
	from.URLSHA256, from.Given = digest, w.Records().BundleResource().ConfigVersion
	return w.Save(ctx, SourceFile, from)
}

// Forget has the versions forgotten that were received and applied last, and returns them.
func (w Writer) Forget(ctx context.Context) ([]config.Resource, error) {
	from, err := w.Records().Source()
	if err != nil {
		return nil, err
	}
	from.Forgotten = slices.Compact([]config.Resource{w.Records().BundleResource(), from.Applied})
	from.Forgotten = slices.DeleteFunc(from.Forgotten,
		func(r config.Resource) bool { return r == config.Resource{} })
	if len(from.Forgotten) == 0 {
		return nil, nil
	}
	return from.Forgotten, w.Save(ctx, SourceFile, from)
}

// Bundle reads the delivered configuration; nil without one.
func (r Records) Bundle() ([]byte, error) { return r.Read(path.Base(BundleFile)) }

// BundleDigest returns the digest of the delivered document; "" without one.
func (r Records) BundleDigest() (string, error) {
	data, err := r.Bundle()
	if err != nil || data == nil {
		return "", err
	}
	document, err := config.Canonical(data)
	if err != nil {
		return "", err
	}
	return state.Digest(string(document)), nil
}

// BundleResource is the flexNodeConfig that the delivered configuration is from; zero if unknown.
func (r Records) BundleResource() config.Resource {
	data, err := r.Bundle()
	if err != nil || data == nil {
		return config.Resource{}
	}
	if from, err := config.ResourceOf(data); err == nil && from != nil {
		return *from
	}
	return config.Resource{}
}

// KeepBundle writes a delivered configuration, and what it says for people and scripts.
func (w Writer) KeepBundle(ctx context.Context, bundle []byte, says config.Config) error {
	if err := apply.Make(ctx, w.Disk, state.Dir{Path: w.Dir, Mode: 0o700}); err != nil {
		return err
	}
	if err := w.Save(ctx, currentFile, shown{Config: says.WithoutSecrets()}); err != nil {
		return err
	}
	return w.Write(ctx, path.Base(BundleFile), string(bundle))
}

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
	Joined   bool   `json:"joined"` // the Node was Ready once
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

// Policy limits what a provider may do with a machine.
type Policy = policy.Policy

// PolicyFile is the file with the policy, which the agent never writes.
const PolicyFile = policy.File

// ReadPolicy reads the policy; trusted says whether only root can change the file at path.
func ReadPolicy(files apply.Files, path string, trusted func(path string) error) (Policy, error) {
	// Asked before the file is opened: if only root can change it now, only root can until then.
	untrusted := trusted(path)
	data, err := files.ReadFile(PolicyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Policy{}, nil
	}
	var p Policy
	if err = errors.Join(untrusted, err); err == nil {
		p, err = policy.Parse(data)
	}
	if err != nil {
		return Policy{}, fmt.Errorf("cannot use the policy %s:\n%w", PolicyFile, err)
	}
	return p, nil
}

// PauseFile is the pause of a machine, below StateDir.
const PauseFile = "pause.json"

// Pause is a time in which the agent begins no change and no repair by itself.
type Pause struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
}

// Pause returns the pause at a time; nil for none.
func (r Records) Pause(now time.Time) (*Pause, error) {
	var p Pause
	found, err := r.Load(PauseFile, &p)
	if err != nil || !found || !now.Before(p.Until) {
		return nil, err
	}
	return &p, nil
}
