package stories

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

// register acts as a kubelet that starts: with the token it gets a certificate, with the
// certificate it registers.
func (c *cluster) register(root, unit string, info corev1.NodeSystemInfo) error {
	dir := filepath.Join(root, "/var/lib/kubelet")
	name := nodeName(root, unit)
	if err := delayShutdown(root); err != nil {
		return err
	}
	if kubeconfig, err := os.ReadFile(filepath.Join(dir, "kubeconfig")); err == nil &&
		strings.Contains(string(kubeconfig), "exec:") {
		go c.admit(root, kubeconfig, name, info)
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "kubeconfig")); err != nil {
		token, err := os.ReadFile(filepath.Join(dir, "bootstrap-kubeconfig"))
		if err != nil {
			return fmt.Errorf("kubelet has no credential: %w", err)
		}
		if !strings.Contains(string(token), c.token) && !strings.Contains(string(token), "exec:") {
			return nil // kubelet runs on and is refused
		}
		if err := c.certify(dir, name); err != nil {
			return err
		}
	}
	c.add(root, name, info)
	return nil
}

// admit acts as a kubelet that uses tokens: it tries until it is admitted.
func (c *cluster) admit(root string, kubeconfig []byte, name string, info corev1.NodeSystemInfo) {
	_, rest, _ := strings.Cut(string(kubeconfig), "command: ")
	command, _, _ := strings.Cut(rest, "\n")
	if at := c.programs[command]; at != "" {
		command = at
	}
	c.mu.Lock()
	deleted := c.deletions
	c.mu.Unlock()
	for c.kubelets.Err() == nil {
		out, err := exec.CommandContext(c.kubelets, command, "token").Output()
		var credential struct{ Status struct{ Token string } }
		if err == nil && json.Unmarshal(out, &credential) == nil {
			oid, err := c.azure.Verify(c.issuer, credential.Status.Token, azuresim.AKSServer)
			if err == nil && c.may(oid, "nodes/write") {
				select {
				case <-deleted: // that kubelet had registered before
				default:
					c.add(root, name, info)
				}
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// add registers a node, or finds it registered, and reports its running versions.
func (c *cluster) add(root, name string, info corev1.NodeSystemInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[name] == nil {
		labels := map[string]string{}
		text, _ := os.ReadFile(
			filepath.Join(root, "/etc/kubernetes/aks-flex-node-registration.env"),
		)
		for _, pair := range strings.Split(flag(string(text), "--node-labels="), ",") {
			key, value, _ := strings.Cut(strings.Trim(pair, `"`), "=")
			if key != "" {
				labels[key] = value
			}
		}
		c.nodes[name] = &corev1.Node{
			TypeMeta:   metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		}
	}
	n := c.nodes[name]
	if !c.noCIDR && n.Spec.PodCIDR == "" {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.244.7.0/24", []string{"10.244.7.0/24"}
		if len(c.podCIDRs) > 0 {
			n.Spec.PodCIDR, n.Spec.PodCIDRs = c.podCIDRs[0], c.podCIDRs
		}
	}
	n.Status.NodeInfo, n.Status.Conditions = info, nil
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	n.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(maxPods(root))}
	if c.reports != nil {
		c.reports(n)
	}
}

// nodeName returns the name in kubelet's arguments, or else the machine's.
func nodeName(root, unit string) string {
	if told := flag(unit, "--hostname-override="); told != "" {
		return told
	}
	name, _ := os.ReadFile(filepath.Join(root, "/proc/sys/kernel/hostname"))
	return strings.ToLower(strings.TrimSpace(string(name)))
}

// delayShutdown acts as a kubelet that ends pods before a shutdown: it makes logind wait.
func delayShutdown(root string) error {
	if !strings.Contains(kubeletConfig(root), `"shutdownGracePeriod": "45s"`) {
		return nil
	}
	dir := filepath.Join(root, "/etc/systemd/logind.conf.d")
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "99-kubelet.conf"),
		[]byte("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=45\n"), 0o644))
}

// kubeletConfig returns the configuration in kubelet's arguments.
func kubeletConfig(root string) string {
	unit, _ := os.ReadFile(filepath.Join(root, "/etc/systemd/system/kubelet.service"))
	text, _ := os.ReadFile(filepath.Join(root, flag(string(unit), "--config=")))
	return string(text)
}

// maxPods returns the value in kubelet's configuration.
func maxPods(root string) string {
	_, rest, _ := strings.Cut(kubeletConfig(root), `"maxPods": `)
	value, _, ok := strings.Cut(rest, ",")
	if !ok {
		return "0"
	}
	return value
}

// flag returns a kubelet flag in its unit.
func flag(unit, name string) string {
	_, rest, _ := strings.Cut(unit, name)
	value, _, _ := strings.Cut(rest, " ")
	return strings.TrimSpace(value)
}

// certify writes the files of a kubelet once its certificate is issued.
func (c *cluster) certify(dir, name string) error {
	cert, private := sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
	}, nil, nil)
	key, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o755); err != nil {
		return err
	}
	current := filepath.Join(dir, "pki", "kubelet-client-current.pem")
	body := append(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})...)
	if err := os.WriteFile(current, body, 0o600); err != nil {
		return err
	}
	kubeconfig := fmt.Sprintf(
		"apiVersion: v1\nkind: Config\n"+
			"clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
			"users: [{name: u, user: {client-certificate: %q, client-key: %q}}]\n"+
			"contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
		c.URL,
		base64.StdEncoding.EncodeToString(c.caPEM),
		current,
		current,
	)
	return os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte(kubeconfig), 0o600)
}

// Kubelet's directory holds the data of running pods, and its identity: a node does not move it.
func TestKubeletDirStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.cluster.run("web")
	before := w.tree()
	w.config = w.configuration(func(c map[string]any) {
		c["paths"] = map[string]any{"kubernetes": map[string]any{"kubeletDir": "/var/lib/other"}}
	})
	if _, err := w.bootstrap(); !refused(err) || !strings.Contains(err.Error(), "unbootstrap") {
		t.Errorf("got %v", err)
	}
	w.same(before)
}

// A program that its owner has put in the place of a link of ours is kept when a change takes its
// place.
func TestOwnersProgramIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.root, "/usr/local/bin/kubectl")
	err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("the owner's"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	w.upgrade()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path + ".aks-flex-node-kept"); string(text) != "the owner's" {
		t.Errorf("kept: %q, %v", text, err)
	}
}
