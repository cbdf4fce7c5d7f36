// This file makes the archive beside it. It runs in test/stories of commit bd1efd1; see README.md.
package stories

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/host"
)

const (
	server  = "127.0.0.1:6443"
	program = "/tmp/bd1efd1-program/aks-flex-node"
)

// machine is machine.json: what of a machine is not below its root.
type machine struct {
	// Configs are the documents that the owner gave, in their order.
	Configs []json.RawMessage `json:"configs"`
	// Running are the active units and Residue is what their programs have left.
	Running []string `json:"running"`
	Residue string   `json:"residue"`
	// Labels are those of the Node; null when there is none.
	Labels map[string]string `json:"labels"`
	// Artifacts is the directory that artifacts came from, Azure where Azure was, and Program is
	// aks-flex-node.
	Artifacts string `json:"artifacts"`
	Azure     string `json:"azure"`
	Program   string `json:"program"`
	// Disks are the directories on which a disk is mounted.
	Disks []string `json:"disks,omitempty"`
	// Before is the machine before the join.
	Before []string `json:"before"`
}

// maker makes one machine.
type maker struct {
	*world
	machine
}

func TestMake(t *testing.T) {
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b, zstd.WithEncoderLevel(zstd.SpeedBestCompression),
		zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(z)
	for _, story := range []struct {
		name string
		tell func(*maker)
	}{
		{"token", (*maker).join},
		{"cilium", (*maker).join},
		{"disk", (*maker).join},
		{"join", (*maker).halfJoin},
		{"change", (*maker).halfChange},
		{"setting", (*maker).halfSetting},
		{"certificate", (*maker).join},
		{"principal", (*maker).join},
		{"rotated", (*maker).rotate},
	} {
		t.Run(story.name, func(t *testing.T) {
			m := newMaker(t, story.name)
			m.Before = strings.Split(m.tree(), "\n")
			story.tell(m)
			m.describe()
			m.pack(archive, story.name)
		})
	}
	err = errors.Join(archive.Close(), z.Close(), os.WriteFile(os.Getenv("ARCHIVE"), b.Bytes(), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

// newMaker makes a machine whose cluster is at the fixed address.
func newMaker(t *testing.T, name string) *maker {
	identity := slices.Contains([]string{"principal", "certificate", "rotated"}, name)
	m := &maker{}
	var sim *azuresim.Sim
	if identity {
		m.world, sim = azureWorld(t)
	} else {
		m.world = newWorld(t)
	}
	m.moveCluster()
	if identity {
		sim.AddCluster(azuresim.Cluster{
			ID: clusterID, Server: m.cluster.URL, CA: string(m.cluster.caPEM), Entra: true, AzureRBAC: true,
		})
		m.installProgram()
	}
	m.Azure = m.cluster.issuer
	m.configure(func(c map[string]any) {
		if !identity {
			return
		}
		azure := map[string]any{
			"tenantId": azuresim.DefaultTenant, "authorityHost": m.Azure, "resourceManagerEndpoint": m.Azure,
			"servicePrincipal": map[string]any{"clientId": clientID, "clientSecret": canary},
			"targetCluster":    map[string]any{"resourceId": clusterID, "location": "lab"},
		}
		if name == "certificate" {
			azure["kubeletCredential"] = "certificate"
		}
		c["azure"] = azure
		kubelet := c["node"].(map[string]any)["kubelet"].(map[string]any)
		delete(kubelet, "serverURL")
		delete(kubelet, "caCertData")
	})
	switch name {
	case "cilium":
		m.write("/etc/cni/net.d/05-cilium.conflist", `{"name": "cilium"}`)
	case "disk":
		m.mount("/var/lib/containerd", "/var/lib/kubelet")
		if err := os.MkdirAll(m.root+"/data/cni", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/data/cni", m.root+"/var/lib/cni"); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// moveCluster has the API server listen at the fixed address.
func (m *maker) moveCluster() {
	c := m.cluster
	c.Close()
	l, err := net.Listen("tcp", server)
	if err != nil {
		m.t.Fatal(err)
	}
	c.Server = httptest.NewUnstartedServer(c.routes())
	c.Listener = l
	c.StartTLS()
	m.t.Cleanup(c.Server.Close)
}

// installProgram puts aks-flex-node where kubelet finds it.
func (m *maker) installProgram() {
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s\n", tokenRoot, m.root, self)
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		m.t.Fatal(err)
	}
	m.program, m.Program = program, program
}

// configure makes what the owner writes, and keeps it.
func (m *maker) configure(change func(map[string]any)) {
	store := m.Artifacts
	m.config = m.configuration(func(c map[string]any) {
		if len(m.Configs) > 0 {
			clear(c)
			if err := json.Unmarshal(m.Configs[len(m.Configs)-1], &c); err != nil {
				m.t.Fatal(err)
			}
		}
		change(c)
		text, err := json.Marshal(c)
		if err != nil {
			m.t.Fatal(err)
		}
		m.Configs = append(m.Configs, text)
	})
	if store == "" {
		m.Artifacts = m.store
	}
}

// mount mounts a disk on directories, in a mount namespace of this thread alone.
func (m *maker) mount(dirs ...string) {
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	for _, dir := range dirs {
		if err == nil {
			err = os.MkdirAll(m.root+dir, 0o755)
		}
		if err == nil {
			err = unix.Mount("disk", m.root+dir, "tmpfs", 0, "mode=0755")
		}
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		for _, dir := range dirs {
			_ = unix.Unmount(m.root+dir, unix.MNT_DETACH)
		}
	})
	m.Disks = dirs
}

func (m *maker) join() {
	if _, err := m.agent().Bootstrap(context.Background(), m.config); err != nil {
		m.t.Fatal(err)
	}
}

// halfJoin kills a join after kubelet was started.
func (m *maker) halfJoin() {
	m.killWhen(func() bool {
		is, err := m.systemd.Unit(context.Background(), "kubelet.service")
		return err == nil && is.Active == "active"
	})
}

// halfChange kills a change of the configuration after kubelet's was written, before its unit was.
func (m *maker) halfChange() {
	m.join()
	m.configure(func(c map[string]any) {
		c["node"].(map[string]any)["labels"] = map[string]any{"example.com/floor": "2"}
		c["node"].(map[string]any)["maxPods"] = 42
	})
	m.killWhenWritten()
}

// halfSetting kills a change after all was written, before kubelet was restarted.
func (m *maker) halfSetting() {
	m.join()
	m.configure(func(c map[string]any) { c["node"].(map[string]any)["maxPods"] = 42 })
	m.killWhenWritten()
}

func (m *maker) killWhenWritten() {
	m.killWhen(func() bool {
		text, err := os.ReadFile(m.root + "/etc/kubernetes/kubelet.yaml")
		return err == nil && strings.Contains(string(text), `"maxPods": 42`)
	})
}

// killWhen runs the agent, which is killed at its first touch after something has happened.
func (m *maker) killWhen(happened func() bool) {
	a, killed := m.agent(), false
	a.Machine.(*host.Host).Touch = func(string) error {
		if killed = killed || happened(); killed {
			return errKilled
		}
		return nil
	}
	if _, err := a.Bootstrap(context.Background(), m.config); !errors.Is(err, errKilled) {
		m.t.Fatalf("the run ended with %v", err)
	}
}

// rotate gives the principal another secret.
func (m *maker) rotate() {
	m.join()
	const next = "second-" + canary
	m.cluster.azure.Load(azuresim.World{
		TenantID: azuresim.DefaultTenant, Subscriptions: []azuresim.Subscription{{ID: subscription}},
		ResourceGroups: []string{groupID},
		Applications: []azuresim.Application{{
			ClientID: clientID, ObjectID: objectID,
			Secrets: []azuresim.Secret{{Value: canary}, {Value: next}},
		}},
		Clusters: []azuresim.Cluster{{
			ID: clusterID, Server: m.cluster.URL, CA: string(m.cluster.caPEM), Entra: true, AzureRBAC: true,
		}},
		Assignments: []azuresim.Assignment{
			{Scope: clusterID, RoleID: "4abbcc35-e782-43d8-92c5-2d3f1bd2253f", PrincipalID: objectID},
			{Scope: clusterID, RoleID: "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b", PrincipalID: objectID},
		},
	})
	m.configure(func(c map[string]any) {
		c["azure"].(map[string]any)["servicePrincipal"].(map[string]any)["clientSecret"] = next
		c["node"].(map[string]any)["maxPods"] = 42
	})
	m.join()
}

// pack adds the machine to the archive: machine.json, its root below root/, and the artifacts below
// artifacts/.
func (m *maker) pack(archive *tar.Writer, name string) {
	text, err := json.Marshal(m.machine)
	if err != nil {
		m.t.Fatal(err)
	}
	m.add(archive, &tar.Header{Name: name + "/machine.json", Mode: 0o600, Typeflag: tar.TypeReg}, text)
	m.addTree(archive, name+"/root", m.root)
	m.addTree(archive, name+"/artifacts", m.store)
}

// addTree adds what is below a directory.
func (m *maker) addTree(archive *tar.Writer, name, dir string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir || strings.HasSuffix(path, "/run/aks-flex-node/lock") {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h := &tar.Header{Name: name + strings.TrimPrefix(path, dir), Mode: int64(info.Mode().Perm())}
		var data []byte
		switch info.Mode().Type() {
		case 0:
			h.Typeflag = tar.TypeReg
			data, err = os.ReadFile(path)
		case fs.ModeDir:
			h.Typeflag = tar.TypeDir
		case fs.ModeSymlink:
			h.Typeflag = tar.TypeSymlink
			h.Linkname, err = os.Readlink(path)
		}
		m.add(archive, h, data)
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *maker) add(archive *tar.Writer, h *tar.Header, data []byte) {
	h.Size = int64(len(data))
	err := archive.WriteHeader(h)
	if err == nil {
		_, err = archive.Write(data)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// describe notes what is not below the root, and gives kubelet a certificate that remains valid.
func (m *maker) describe() {
	units, err := m.systemd.Units(context.Background(), "*")
	if err != nil {
		m.t.Fatal(err)
	}
	slices.Sort(units)
	m.Running, m.Residue = units, m.kernel.show()
	if n := m.cluster.nodes["edge-1"]; n != nil {
		m.Labels = n.Labels
	}
	if _, err := os.Stat(m.root + pki); err == nil {
		m.certify()
	}
}

// pki is where kubelet's certificate is.
const pki = "/var/lib/kubelet/pki/kubelet-client-current.pem"

func (m *maker) certify() {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "system:node:edge-1", Organization: []string{"system:nodes"}},
		NotBefore:    time.Now().AddDate(-1, 0, 0), NotAfter: time.Now().AddDate(100, 0, 0),
	}
	key := m.cluster.caKey
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		m.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		m.t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})...)
	if err := os.WriteFile(m.root+pki, text, 0o600); err != nil {
		m.t.Fatal(err)
	}
}
