package node

import (
	"encoding/base64"
	"fmt"
	"path"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// credentials writes the cluster's CA, without which `kubectl logs` and `exec` are refused, and what kubelet asks for its own
// certificate with. The token goes again as soon as kubelet has that certificate.
func credentials(p *part) {
	p.owe([]string{kubeletUnit}, state.NewFile(p.clientCA(), 0o644, p.facts.CA))
	token := p.config.Azure.BootstrapToken
	if token == nil {
		return
	}
	if p.facts.Joined { // wanted absent, rather than not wanted: its going is no reason to restart kubelet
		p.add(state.Absent{Path: p.bootstrapKubeconfig()})
		return
	}
	file := state.NewFile(p.bootstrapKubeconfig(), 0o600, p.tokenKubeconfig(token.Token.Reveal()))
	file.Secret = true
	p.owe([]string{kubeletUnit}, file)
}

func (p *part) clientCA() string { return path.Join(p.config.Paths.Kubernetes.CertsDir, "ca.crt") }

// kubeconfig is written by kubelet itself once it has a certificate.
func (p *part) kubeconfig() string { return KubeconfigPath(p.config.Paths.Kubernetes.KubeletDir) }

func (p *part) bootstrapKubeconfig() string {
	return path.Join(p.config.Paths.Kubernetes.KubeletDir, "bootstrap-kubeconfig")
}

// KubeconfigPath is the kubeconfig of a kubelet whose root directory is dir.
func KubeconfigPath(dir string) string { return path.Join(dir, "kubeconfig") }

func (p *part) tokenKubeconfig(token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: bootstrap
  user:
    token: %s
contexts:
- name: bootstrap
  context:
    cluster: cluster
    user: bootstrap
current-context: bootstrap
`, p.facts.Server, base64.StdEncoding.EncodeToString([]byte(p.facts.CA)), token)
}
