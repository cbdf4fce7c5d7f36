package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// BundleFile is the configuration that a resource provider has delivered last, with its secrets:
// while it is there, it is the machine's configuration.
const BundleFile = StateDir + "/bundle.json"

const sourceFile = "source.json"

// source tells where the bundle is from.
type source struct {
	// URLSHA256 recognizes the configuration URL, which is kept nowhere.
	URLSHA256 string `json:"urlSHA256"`
	// Applied is the version that the node runs on.
	Applied config.Resource `json:"applied,omitzero"`
}

// Delivery is a configuration as a configuration URL has given it.
type Delivery struct {
	Bundle []byte
	// Loaded is what the bundle says.
	Loaded config.Loaded
	// URLSHA256 recognizes the URL.
	URLSHA256 string
}

// OtherNodeError tells that a machine is a node already, and that the configuration is of another.
type OtherNodeError struct{ Is, Given string }

func (e *OtherNodeError) Error() string {
	return fmt.Sprintf("cannot use the configuration: it is of %s, and this machine is %s; run "+
		"`aks-flex-node unbootstrap` first, or use a URL of that node", e.Given, e.Is)
}

// Received tells whether this machine has its configuration from the URL with a digest.
func (a *Agent) Received(digest string) (bool, error) {
	r := records{host: a.Machine, dir: StateDir}
	var from source
	known, err := r.load(sourceFile, &from)
	if err != nil || !known || from.URLSHA256 != digest {
		return false, err
	}
	_, err = a.Machine.ReadFile(BundleFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Receive makes a delivered configuration the one of this machine. It is on disk, 0600, before
// anything else is done with it. On a machine that is a node it must be of the same node; one of
// another is an *OtherNodeError, and nothing is written. What is the same as before is not written.
func (a *Agent) Receive(ctx context.Context, d Delivery) error {
	h, err := a.openLocked(ctx, "agent --config-url")
	if err != nil {
		return err
	}
	defer h.close()
	if h.transition != nil && h.transition.Kind == transition.Leave {
		return errors.New("cannot use the configuration: this machine is being given back; wait for " +
			"that, or run `aks-flex-node unbootstrap`")
	}
	if err := h.forThisNode(d.Loaded.Config); err != nil {
		return err
	}
	if same, err := h.hasReceived(ctx, d); err != nil || same {
		return err
	}
	if err := h.keepBundle(ctx, d.Bundle); err != nil {
		return err
	}
	var from source
	if _, err := h.records.load(sourceFile, &from); err != nil {
		return err
	}
	from.URLSHA256 = d.URLSHA256
	return h.records.save(ctx, sourceFile, from)
}

// Withdraw takes back a configuration that was delivered to a machine which is a node by a file,
// and was not applied: whoever has interrupted that does not want it. It tells whether it has done
// so.
func (a *Agent) Withdraw(ctx context.Context) (bool, error) {
	h, err := a.openLocked(ctx, "agent --config-url")
	if err != nil {
		return false, err
	}
	defer h.close()
	digest, err := h.bundleDigest()
	if err != nil || digest == "" {
		return false, err
	}
	if h.applied == nil || h.applied.Received == digest || h.appliedResource() != (config.Resource{}) {
		return false, nil
	}
	return true, errors.Join(h.records.remove(ctx, path.Base(BundleFile)),
		h.records.remove(ctx, sourceFile))
}

// keepBundle puts a bundle on disk.
func (h *home) keepBundle(ctx context.Context, bundle []byte) error {
	dir := state.Dir{Path: StateDir, Mode: 0o700}
	is, err := h.Machine.Observe(ctx, dir.Key())
	if err != nil {
		return err
	}
	if _, absent := is.(state.Absent); absent {
		if err := h.Machine.Set(ctx, state.Change{From: is, To: dir}, nil); err != nil {
			return err
		}
	}
	file := state.NewFile(BundleFile, 0o600, string(bundle))
	if is, err = h.Machine.Observe(ctx, file.Key()); err != nil {
		return err
	}
	return errors.Join(h.Machine.Set(ctx, state.Change{From: is, To: file}, nil), h.Machine.Flush())
}

// forThisNode is an *OtherNodeError if this machine is, or is becoming, another node than a
// configuration describes.
func (h *home) forThisNode(c config.Config) error {
	if h.live == nil {
		return nil
	}
	is, given := nameOf(h.live.Config), nameOf(c)
	if strings.EqualFold(is, given) {
		return nil
	}
	return &OtherNodeError{Is: is, Given: given}
}

// nameOf names a node and its cluster.
func nameOf(c config.Config) string {
	return fmt.Sprintf("the node %s of the cluster %s", c.Agent.NodeName,
		path.Clean(c.Azure.TargetCluster.ResourceID))
}

// hasReceived tells whether a joined machine has a delivered version already. The bootstrap token
// in it is another one, which a node that has its certificate does not need. An Arc machine that
// has to be enrolled again needs the secret in it.
func (h *home) hasReceived(ctx context.Context, d Delivery) (bool, error) {
	given := d.Loaded.Resource
	if given == nil || h.applied == nil || !h.credentialed(h.applied.Config) {
		return false, nil
	}
	data, err := h.Machine.ReadFile(BundleFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	before, err := config.ResourceOf(data)
	if err != nil || before == nil || *before != *given {
		return false, nil
	}
	c := d.Loaded.Config.Azure
	return !(c.ArcEnabled() && onboards(c) && len(h.arcLost(ctx)) > 0), nil
}

// EnableService has the agent's service start at boot; false when it is not installed. Leaving
// disables it.
func (a *Agent) EnableService(ctx context.Context) (bool, error) {
	is, err := a.Machine.Observe(ctx, state.UnitKey(Service))
	if err != nil {
		return false, err
	}
	unit, ok := is.(state.Unit)
	if !ok || unit.Enabled == state.NoUnit || unit.Enabled == state.Masked {
		return false, nil
	}
	to := unit
	to.Enabled = state.Enabled
	if state.Equal(unit, to) {
		return true, nil
	}
	return true, a.Machine.Set(ctx, state.Change{From: unit, To: to}, nil)
}

// StartService starts the agent's service, or restarts it: it reads the configuration anew.
func (a *Agent) StartService(ctx context.Context) error {
	return a.Machine.RestartUnit(ctx, Service)
}
