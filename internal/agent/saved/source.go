package saved

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/policy"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// BundleFile is the configuration last delivered by a provider, with its secrets.
const BundleFile = StateDir + "/bundle.json"

// Records reads the records in StateDir.
type Records struct{ apply.Records }

// Writer writes the records in StateDir.
type Writer struct{ apply.Writer }

// NewRecords returns the records of a machine.
func NewRecords(files apply.Files) Records {
	return Records{apply.Records{Files: files, Dir: StateDir}}
}

// NewWriter returns a writer of the records of a machine.
func NewWriter(disk apply.Disk) Writer { return Writer{apply.Writer{Disk: disk, Dir: StateDir}} }

// Records returns a reader of the records.
func (w Writer) Records() Records { return NewRecords(w.Disk) }

// Source describes the origin of the bundle.
type Source struct {
	// URLSHA256 identifies the configuration URL, which is not stored.
	URLSHA256 string `json:"urlSHA256"`
	// Given is the version that a person has delivered with it.
	Given     string          `json:"given,omitempty"`
	Applied   config.Resource `json:"applied,omitzero"`   // the version that the node runs
	AppliedAt time.Time       `json:"appliedAt,omitzero"` // since then
	// Forgotten are versions that a person made the node forget: any version may follow them.
	Forgotten []config.Resource `json:"forgotten,omitempty"`
}

// Source reads the origin of the bundle; zero if there is no bundle.
func (r Records) Source() (from Source, err error) {
	_, err = r.Load(SourceFile, &from)
	return from, err
}

// SetApplied records the version that the node runs, and since when; zero for none.
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
	received := w.Records().BundleResource()
	from.Forgotten = slices.DeleteFunc(from.Forgotten, // they may come again
		func(r config.Resource) bool { return r != resource && r != received })
	return w.Save(ctx, SourceFile, from)
}

// SetURL records the URL of the bundle.
func (w Writer) SetURL(ctx context.Context, digest string) error {
	from, err := w.Records().Source()
	if err != nil {
		return err
	}
	from.URLSHA256, from.Given = digest, w.Records().BundleResource().ConfigVersion
	return w.Save(ctx, SourceFile, from)
}

// Forget makes the node forget the last received and applied versions, and returns them.
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

// Bundle reads the delivered configuration; nil if none.
func (r Records) Bundle() ([]byte, error) { return r.Read(path.Base(BundleFile)) }

// BundleDigest returns the digest of the delivered document; "" if none.
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

// BundleResource returns the flexNodeConfig of the delivered configuration; zero if unknown.
func (r Records) BundleResource() config.Resource {
	data, _ := r.Bundle()
	if from, err := config.ResourceOf(data); err == nil && from != nil {
		return *from
	}
	return config.Resource{}
}

// KeepBundle stores a delivered configuration, and a form of it for people and scripts.
func (w Writer) KeepBundle(ctx context.Context, bundle []byte, says config.Config) error {
	if err := apply.Make(ctx, w.Disk, state.Dir{Path: w.Dir, Mode: 0o700}); err != nil {
		return err
	}
	if err := w.Save(ctx, currentFile, shown{Config: says.WithoutSecrets()}); err != nil {
		return err
	}
	return w.Write(ctx, path.Base(BundleFile), string(bundle))
}

// The files for people and scripts, written from the records and never read, except JoinFile, whose
// presence shows that a machine has lost its ledger. SetApplied writes VersionFile.
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

// shown is a configuration for people and scripts, without its secrets.
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

// PublishApplied writes the applied and previous configurations.
func (s *Store) PublishApplied(ctx context.Context) error {
	previous, err := s.Former(ctx)
	if err != nil {
		return err
	}
	return errors.Join(s.PublishCurrent(ctx, s.Applied), s.publish(ctx, appliedFile, s.Applied),
		s.publish(ctx, previousFile, previous), s.PublishJoin(ctx, s.Applied.Config.Agent.NodeName))
}

// PublishJoin writes the machine's membership of its cluster.
func (s *Store) PublishJoin(ctx context.Context, nodeName string) error {
	return s.Save(ctx, JoinFile, JoinState{
		NodeName: nodeName, Server: s.Bindings.Server,
		CASHA256: state.Digest(s.Bindings.CA), Joined: s.Bindings.Joined,
	})
}

// Policy limits what a provider may do with a machine.
type Policy = policy.Policy

// Policy reads the policy; trusted returns an error if others than root can change the file.
func (r Records) Policy(at func(string) string, trusted func(string) error) (p Policy, err error) {
	// Checked before opening: if only root can change it now, only root can change it until then.
	untrusted := trusted(at(policy.File))
	data, err := r.Files.ReadFile(policy.File)
	if _, none := os.Lstat(at(policy.File)); errors.Is(none, fs.ErrNotExist) {
		return p, nil // but a link to a missing file is a policy
	}
	if err = errors.Join(untrusted, err); err == nil {
		p, err = policy.Parse(data)
	}
	if err != nil {
		err = fmt.Errorf("cannot use the policy %s:\n%w", policy.File, err)
	}
	return p, err
}

// ConfigFile is the owner's configuration, unless --config names another.
const ConfigFile = "/etc/aks-flex-node/config.json"

// FormerFile is in StateDir while a service waits after its machine was given back: the digest of
// the configuration file, with which the machine must not join again after a reboot.
const FormerFile = "former-config.sha256"

// PauseFile is the pause of a machine, in StateDir.
const PauseFile = "pause.json"

// Pause is a time in which the agent begins no changes or repairs by itself.
type Pause struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
}

// Pause returns the pause that is in force at now; nil if none is.
func (r Records) Pause(now time.Time) (*Pause, error) {
	var p Pause
	if found, err := r.Load(PauseFile, &p); err != nil || !found || !now.Before(p.Until) {
		return nil, err
	}
	return &p, nil
}
