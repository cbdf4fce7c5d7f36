package generation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/host/systemdtest"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// The secrets of the configuration below, of which a generation may hold only the proxy's.
const (
	clientSecret  = "canary-of-the-principal"
	proxyPassword = "canary-of-the-proxy"
)

// rendered is a whole node whose kubelet takes so many pods.
func rendered(t *testing.T, maxPods int) Generation {
	t.Helper()
	text := fmt.Sprintf(`{
		"azure": {
			"tenantId": "11111111-1111-1111-1111-111111111111",
			"servicePrincipal": {
				"clientId": "22222222-2222-2222-2222-222222222222", "clientSecret": %q
			},
			"targetCluster": {
				"resourceId": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/`+
		`providers/Microsoft.ContainerService/managedClusters/c",
				"location": "x"
			}
		},
		"kubernetes": {"version": "1.34.4"},
		"proxy": {"https": "http://user:%s@127.0.0.1:9"},
		"node": {"maxPods": %d, "labels": {"example.com/site": "north"}}
	}`, clientSecret, proxyPassword, maxPods)
	loaded, err := config.Parse([]byte(text), config.Host{HostName: "edge-1", Arch: "amd64"})
	c := loaded.Config
	if err != nil {
		t.Fatal(err)
	}
	f := node.Facts{
		Arch: "amd64", ResolvConf: "/etc/resolv.conf",
		Store: map[string]string{"kubelet": node.StoreDir + "/k", "containerd": node.StoreDir + "/c"},
	}
	o := Origin{Kind: "file", Agent: "1.0"}
	g, err := New(c, "digest-of-the-document", f, node.Render(c, f), o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// disk is a machine with the store's directory.
type disk struct {
	Store
	root string
	// touches counts the changes of the machine; the one that left counts down to is the last.
	touches, left int
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{root: t.TempDir(), left: -1}
	if err := os.MkdirAll(filepath.Join(d.root, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.reopen()
	return d
}

// reopen makes a new process of the machine's.
func (d *disk) reopen() {
	h := &host.Host{
		Root: d.root, Systemd: systemdtest.New(d.root), Log: slog.New(slog.DiscardHandler),
		Touch: d.touch,
	}
	d.Store = Store{Reader: Reader{Files: h, Dir: "/state"}, Disk: h}
}

func (d *disk) file(path string) string { return filepath.Join(d.root, path) }

func (d *disk) save(t *testing.T, g Generation) {
	t.Helper()
	if err := d.Save(t.Context(), g); err != nil {
		t.Fatal(err)
	}
}

// same fails unless two generations are the same in everything.
func same(t *testing.T, want, got Generation) {
	t.Helper()
	reveal := cmp.Transformer("reveal", func(c config.Config) string {
		return string(c.Reveal())
	})
	if diff := cmp.Diff(want, got, reveal, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("not the same generation: %s", diff)
	}
}

// What is kept is what was rendered, for root alone and without the credentials of Azure.
func TestRoundTrip(t *testing.T) {
	d, want := newDisk(t), rendered(t, 110)
	d.save(t, want)
	got, err := d.Load(want.ID)
	if err != nil {
		t.Fatal(err)
	}
	want.Config = want.Config.WithoutSecrets()
	same(t, want, got)
	c, err := d.Config(want.ID)
	if err != nil || c.Agent.NodeName != "edge-1" || c.Credentials() != (config.Credentials{}) {
		t.Errorf("the configuration is %v, %v", c, err)
	}
	if diff := cmp.Diff(want.Facts.Store, got.Facts.Store); diff != "" {
		t.Error(diff)
	}
	for path, mode := range map[string]os.FileMode{
		"/state/generations":                                0o700,
		"/state/generations/" + got.ID:                      0o700,
		"/state/generations/" + got.ID + "/node.json":       0o600,
		"/state/generations/" + got.ID + "/generation.json": 0o600,
	} {
		info, err := os.Stat(d.file(path))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
			continue
		}
		if info.IsDir() {
			continue
		}
		data, err := os.ReadFile(d.file(path))
		if err != nil || strings.Contains(string(data), clientSecret) {
			t.Errorf("%s has the client secret, %v", path, err)
		}
	}
}

// The same node is the same generation, and is written once; another one is another.
func TestIdentity(t *testing.T) {
	d, first, second := newDisk(t), rendered(t, 110), rendered(t, 42)
	if again := rendered(t, 110); again.ID != first.ID || len(first.ID) != 64 {
		t.Errorf("ids are %s and %s", first.ID, again.ID)
	}
	if first.ID == second.ID {
		t.Error("two nodes have one id")
	}
	for what, change := range map[string]func(*Generation){
		"origin":   func(g *Generation) { g.Origin.Agent = "1.1" },
		"document": func(g *Generation) { g.Received = "another" },
		"facts":    func(g *Generation) { g.Facts.Arch = "arm64" },
	} {
		g := first
		change(&g)
		again, err := New(g.Config, g.Received, g.Facts, g.Node, g.Origin)
		if err != nil || again.ID == first.ID {
			t.Errorf("another %s has the same id, %v", what, err)
		}
	}
	d.save(t, first)
	touches := d.touches
	d.save(t, first)
	if d.touches != touches {
		t.Errorf("%d changes to write what is there", d.touches-touches)
	}
}

// A generation that is not whole, or not what it was, is never used; writing it again mends it.
func TestDamage(t *testing.T) {
	write := func(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }
	for name, harm := range map[string]func(path string) error{
		"changed": func(path string) error {
			data, err := os.ReadFile(path)
			return errors.Join(err, write(path, strings.Replace(string(data), "110", "111", 1)))
		},
		"cut off": func(path string) error { return os.Truncate(path, 100) },
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"no JSON": func(path string) error { return write(path, "not JSON") },
		"gone":    os.Remove,
		"a directory": func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
	} {
		for _, file := range []string{"generation.json", "node.json"} {
			t.Run(file+" "+name, func(t *testing.T) {
				d, g := newDisk(t), rendered(t, 110)
				d.save(t, g)
				path := d.file("/state/generations/" + g.ID + "/" + file)
				if err := harm(path); err != nil {
					t.Fatal(err)
				}
				_, err := d.Load(g.ID)
				if err == nil || name != "a directory" && !errors.Is(err, ErrDamaged) {
					t.Errorf("the error is %v", err)
				}
				if err := d.Point(t.Context(), Live, g.ID); err != nil {
					t.Fatal(err)
				}
				if read, err := d.Read(t.Context(), Live); err == nil {
					t.Errorf("read %v", read)
				}
				if _, err := d.Config(g.ID); (err == nil) != (file == "node.json") {
					t.Errorf("the configuration's error is %v", err)
				}
				d.save(t, g)
				if got, err := d.Load(g.ID); err != nil || got.ID != g.ID {
					t.Errorf("written again: %v", err)
				}
			})
		}
	}
}

// put writes the files of a generation as they are given, and returns their directory.
func (d *disk) put(t *testing.T, id string, first, second []byte) string {
	t.Helper()
	dir := d.file("/state/generations/" + id)
	err := errors.Join(
		os.MkdirAll(dir, 0o700), os.WriteFile(dir+"/generation.json", first, 0o600),
		os.WriteFile(dir+"/node.json", second, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// A generation of a newer release holds what this one does not know; saving it again keeps that.
func TestSaveKeepsUnknownFields(t *testing.T) {
	d, g := newDisk(t), rendered(t, 110)
	first, second, err := g.encode()
	if err != nil {
		t.Fatal(err)
	}
	former := state.Digest(string(second))
	second = bytes.Replace(second, []byte(`"is":"file"`), []byte(`"is":"file","newer":1`), 1)
	first = bytes.Replace(first, []byte(former), []byte(state.Digest(string(second))), 1)
	first = bytes.Replace(first, []byte(`{`), []byte(`{"newer":1,`), 1)
	id := state.Digest(string(first))
	dir := d.put(t, id, first, second)
	read, err := d.Load(id)
	if err != nil {
		t.Fatal(err)
	}
	d.save(t, read)
	if _, err := d.Load(id); err != nil || d.touches > 0 {
		t.Errorf("saved with %d touches, it cannot be read: %v", d.touches, err)
	}
	if err := os.Remove(dir + "/generation.json"); err != nil {
		t.Fatal(err)
	}
	if err := d.Save(t.Context(), read); !errors.Is(err, ErrDamaged) || d.touches > 0 {
		t.Errorf("written without what is not known, with %d touches: %v", d.touches, err)
	}
}

// A content that is not in its generation makes it damaged, whatever the digests say.
func TestContentMissing(t *testing.T) {
	d, g := newDisk(t), rendered(t, 110)
	d.save(t, g)
	second, err := json.Marshal(body{Resources: g.Node})
	if err != nil {
		t.Fatal(err)
	}
	first, err := json.Marshal(head{Config: []byte("{}"), NodeSHA256: state.Digest(string(second))})
	if err != nil {
		t.Fatal(err)
	}
	id := state.Digest(string(first))
	d.put(t, id, first, second)
	_, err = d.Load(id)
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "content of") {
		t.Errorf("the error is %v", err)
	}
}

// Pointers lead to generations; one that is not there is no error.
func TestPointers(t *testing.T) {
	d, first, second := newDisk(t), rendered(t, 110), rendered(t, 42)
	ctx := t.Context()
	for _, p := range []Pointer{Live, Applied, Previous} {
		if g, err := d.Read(ctx, p); err != nil || g != nil {
			t.Errorf("%s: %v, %v", p, g, err)
		}
	}
	d.save(t, first)
	d.save(t, second)
	for _, g := range []Generation{first, second, second} {
		if err := d.Point(ctx, Live, g.ID); err != nil {
			t.Fatal(err)
		}
		got, err := d.Read(ctx, Live)
		if err != nil || got.ID != g.ID {
			t.Errorf("live is %v, %v", got, err)
		}
	}
	target, err := os.Readlink(d.file("/state/live"))
	if err != nil || target != "generations/"+second.ID {
		t.Errorf("the link is %q, %v", target, err)
	}
}

// Only what is kept remains, strangers and halves included among what goes.
func TestCollect(t *testing.T) {
	d, first, second := newDisk(t), rendered(t, 110), rendered(t, 42)
	ctx := t.Context()
	if err := d.Collect(ctx); err != nil {
		t.Errorf("without generations: %v", err)
	}
	d.save(t, first)
	d.save(t, second)
	half := d.file("/state/generations/half")
	err := errors.Join(os.Mkdir(half, 0o700), os.WriteFile(half+"/node.json", nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Collect(ctx, second.ID); err != nil {
		t.Fatal(err)
	}
	names, err := d.Files.List("/state/generations")
	if err != nil || !cmp.Equal(names, []string{second.ID}) {
		t.Errorf("left are %v, %v", names, err)
	}
	if err := d.Collect(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Load(second.ID); !errors.Is(err, ErrDamaged) {
		t.Errorf("the error is %v", err)
	}
}

// A known generation is not decoded again, but damage to its files is still found.
func TestKnown(t *testing.T) {
	for _, name := range []string{"generation.json", "node.json"} {
		d, want := newDisk(t), rendered(t, 110)
		d.save(t, want)
		known, err := d.Reader.Load(want.ID)
		if err != nil {
			t.Fatal(err)
		}
		d.Reader.Known = &known
		got, err := d.Reader.Load(want.ID)
		if err != nil || &got.Node[0] != &known.Node[0] {
			t.Errorf("decoded again, or not read: %v", err)
		}
		file := d.root + "/state/generations/" + want.ID + "/" + name
		if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Reader.Load(want.ID); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}
