package stories

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// delivery returns the answer of a configuration URL for this machine.
func (w *world) delivery(version string, edits ...func(map[string]any)) change.Delivery {
	w.t.Helper()
	document := w.document(edits...)
	bundle, err := json.Marshal(map[string]any{
		"config": json.RawMessage(document),
		"resource": map[string]any{
			"id": "/flexNodeConfig/edge-1", "uid": "u", "configVersion": version, "epoch": 1,
		},
		"schemaVersion": config.SchemaVersion, "enrolmentSecret": enrolmentSecret,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	bundle = installation().signs(w.t, bundle)
	loaded, err := config.Parse(bundle, config.Host{HostName: "edge-1", Arch: runtime.GOARCH})
	if err != nil {
		w.t.Fatal(err)
	}
	loaded.Document = document
	return change.Delivery{Bundle: bundle, Loaded: loaded, URLSHA256: "digest of " + version}
}

// bundle returns the delivered configuration on disk, "" without one.
func (w *world) bundle() string {
	data, err := os.ReadFile(filepath.Join(w.root, saved.BundleFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return string(data)
}

// A delivered configuration is on disk, for root alone, before any change; the machine joins with
// it, and it is removed with the node.
func TestReceive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.tree()
	d := w.delivery("7")
	a := w.agent()
	if err := change.Receive(t.Context(), a, d); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{saved.StateDir: 0o700, saved.BundleFile: 0o600} {
		info, err := os.Stat(filepath.Join(w.root, path))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	known, err := change.Received(a, d.URLSHA256)
	other, err2 := change.Received(a, "of another URL")
	if errors.Join(err, err2) != nil || !known || other {
		t.Errorf("knows its URL: %t, knows another: %t, %v, %v", known, other, err, err2)
	}
	in := change.Input{Config: d.Loaded.Config, Document: d.Loaded.Document, Origin: "url"}
	if _, err := change.Bootstrap(t.Context(), a, in); err != nil {
		t.Fatal(err)
	}
	if w.bundle() != string(d.Bundle) {
		t.Error("the bundle is gone")
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// A node accepts no configuration of another node or cluster, and none twice.
func TestReceiveOnANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.delivery("7")
	a := w.agent()
	if err := change.Receive(t.Context(), a, d); err != nil {
		t.Fatal(err)
	}
	in := change.Input{Config: d.Loaded.Config, Document: d.Loaded.Document, Origin: "url"}
	if _, err := change.Bootstrap(t.Context(), a, in); err != nil {
		t.Fatal(err)
	}
	joined := w.tree()
	for name, edit := range map[string]func(map[string]any){
		"edge-2": func(c map[string]any) { c["agent"].(map[string]any)["nodeName"] = "edge-2" },
		"other-cluster": func(c map[string]any) {
			cluster := c["azure"].(map[string]any)["targetCluster"].(map[string]any)
			cluster["resourceId"] = cluster["resourceId"].(string) + "other-cluster"
		},
	} {
		err := change.Receive(t.Context(), a, w.delivery("8", edit))
		_, refused := errors.AsType[*change.OtherNodeError](err)
		if !refused || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "unbootstrap") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	again := w.delivery("7")
	again.Bundle = append(again.Bundle, '\n')
	if err := change.Receive(t.Context(), a, again); err != nil {
		t.Error(err)
	}
	w.same(joined)
	next := w.delivery("8", pods(42))
	if err := change.Receive(t.Context(), a, next); err != nil || w.bundle() != string(next.Bundle) {
		t.Errorf("the next version was not taken: %v", err)
	}
}

// After a kill anywhere, the machine has the whole bundle or none, and gives everything back.
func TestReceiveKilledAnywhere(t *testing.T) {
	t.Parallel()
	points := kills(t, 0, 1, func(at int, when string) bool {
		w := newWorld(t)
		before := w.tree()
		d := w.delivery("7")
		killed := w.killed(t, at, func() error {
			return w.run(func(ctx context.Context, a *change.Agent) error {
				return change.Receive(ctx, a, d)
			})
		})
		if text := w.bundle(); text != "" && text != string(d.Bundle) {
			t.Fatalf("%s, half of a bundle is left", when)
		}
		if known, err := change.Received(w.agent(),
			d.URLSHA256); err != nil || known && w.bundle() == "" {
			t.Errorf("%s: knows its URL without the bundle: %v", when, err)
		}
		if err := w.unbootstrap(); err != nil {
			t.Fatal(err)
		}
		w.same(before)
		return killed
	})
	if points < 3 {
		t.Errorf("it has %d touches only", points)
	}
}

// An interrupted delivery on a node that was made from a file keeps that file's configuration. On a
// machine that is no node yet, or that follows already, the delivered one remains.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	withdrawn := func() bool {
		t.Helper()
		back, err := change.Withdraw(t.Context(), w.agent())
		if err != nil {
			t.Fatal(err)
		}
		if back && w.bundle() != "" {
			t.Error("the configuration is still there")
		}
		return back
	}
	if err := change.Receive(t.Context(), w.agent(), w.delivery("7")); err != nil {
		t.Fatal(err)
	}
	if withdrawn() {
		t.Error("the configuration that the machine is to join with is taken back")
	}
	w = newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	next := w.delivery("7", pods(42))
	if err := change.Receive(t.Context(), w.agent(), next); err != nil {
		t.Fatal(err)
	}
	if !withdrawn() {
		t.Error("the configuration that was interrupted is not taken back")
	}
	if known, err := change.Received(w.agent(), next.URLSHA256); err != nil || known {
		t.Errorf("the URL counts as used: %t, %v", known, err)
	}
	text := w.read(saved.StateDir + "/current-config.json")
	if strings.Contains(text, `"maxPods": 42`) {
		t.Errorf("current-config.json is still that of the URL:\n%s", text)
	}
	if err := w.daemonRuns(nil); err != nil || maxPods(w.root) != "110" {
		t.Errorf("the daemon: %v; kubelet takes %s pods", err, maxPods(w.root))
	}
}

// A machine that is being given back takes no configuration: it would be removed with the rest.
func TestReceiveWhileLeaving(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if !w.killed(t, 10, w.unbootstrap) || !w.has(saved.TransitionFile) {
		t.Fatal("it is not half given back")
	}
	err := change.Receive(t.Context(), w.agent(), w.delivery("7"))
	if err == nil || !strings.Contains(err.Error(), "is being restored") || w.bundle() != "" {
		t.Errorf("got %v", err)
	}
}

// An offer for the former enrolment does not replace the configuration of another URL, which a
// person has used since the offer was fetched.
func TestOfferBesideAnotherURL(t *testing.T) {
	t.Parallel()
	w := followingWorld(t)
	other := w.delivery("8", monitored)
	other.Bundle = bytes.Replace(other.Bundle, []byte(`"once"`), []byte(`"twice"`), 1)
	if err := change.Receive(t.Context(), w.agent(), other); err != nil {
		t.Fatal(err)
	}
	w.offer = w.delivery("9", monitored)
	if err := w.takesOffer(); err == nil || w.bundle() != string(other.Bundle) {
		t.Errorf("the offer is taken: %v", err)
	}
}

// The deletion of a resource does not give back a machine that has another one's configuration.
func TestDeletionOfAFormerResource(t *testing.T) {
	t.Parallel()
	w := followingWorld(t)
	joined := w.tree()
	err := w.run(func(ctx context.Context, a *change.Agent) error {
		how := change.Leave{Options: transition.Options{Waits: true, Deleted: "former"}}
		_, err := change.Unbootstrap(ctx, a, nil, how)
		return err
	})
	if kind := transition.Of(err).Kind; kind != transition.Replaced {
		t.Errorf("it ends as %q: %v", kind, err)
	}
	w.same(joined)
}

// full is a machine whose disk has no room for the bundle.
type full struct{ change.Machine }

// Set implements apply.Host.
func (f full) Set(
	ctx context.Context, c state.Change, content func(string) (io.ReadCloser, error),
) error {
	if c.To.Key() == state.PathKey(saved.BundleFile) {
		return syscall.ENOSPC
	}
	return f.Machine.Set(ctx, c, content)
}

// A node that has no room for another URL's bundle keeps its key, with which the provider knows it.
func TestReceiveWithoutRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent()
	if err := change.Receive(t.Context(), a, w.delivery("7")); err != nil {
		t.Fatal(err)
	}
	key, err := change.MachineKeys(a).MachineKey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := w.delivery("8")
	next.Bundle = bytes.Replace(next.Bundle, []byte(`"once"`), []byte(`"twice"`), 1)
	a.Machine = full{a.Machine}
	if err := change.Receive(t.Context(), a, next); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	now, err := change.MachineKeys(a).MachineKey(t.Context())
	if err != nil || now.Thumbprint() != key.Thumbprint() {
		t.Errorf("another key, %v", err)
	}
}

// followingWorld returns a world whose machine has joined by a URL, with version 7.
func followingWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.offer = w.delivery("7", monitored)
	w.config = w.offer.Loaded.Config
	if err := w.joinsByURL(); err != nil {
		t.Fatal(err)
	}
	return w
}
