package node

import (
	"encoding/base64"
	"fmt"
	"path"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// credentials writes the cluster's CA, without which `kubectl logs` and `exec` are refused, and what kubelet shows or asks for its own
// certificate with. A bootstrap token goes again as soon as kubelet has that certificate; an identity may ask for another one.
func credentials(p *part) {
	p.owe([]string{kubeletUnit}, state.NewFile(p.clientCA(), 0o644, p.facts.CA))
	token := p.config.Azure.BootstrapToken
	switch {
	case p.config.Azure.ShowsToken():
		p.tokenScript()
		p.owe([]string{kubeletUnit}, state.NewFile(p.kubeconfig(), 0o600, p.kubeconfigOf("identity", p.tokenCommand())))
	case token == nil:
		p.tokenScript()
		p.owe([]string{kubeletUnit}, state.NewFile(p.bootstrapKubeconfig(), 0o600, p.kubeconfigOf("identity", p.tokenCommand())))
	case p.facts.Joined: // wanted absent, rather than not wanted: its going is no reason to restart kubelet
		p.add(state.Absent{Path: p.bootstrapKubeconfig()})
	default:
		file := state.NewFile(p.bootstrapKubeconfig(), 0o600, p.kubeconfigOf("bootstrap", "token: "+token.Token.Reveal()))
		file.Secret = true
		p.owe([]string{kubeletUnit}, file)
	}
}

// tokenScript is for people and scripts that want kubelet's token; kubelet itself calls the program.
func (p *part) tokenScript() {
	p.add(state.NewFile(path.Join(p.config.Paths.Kubernetes.KubeletDir, "token.sh"), 0o700, "#!/bin/sh\nexec "+p.facts.Program+" token \"$@\"\n"))
}

// tokenCommand has client-go call the program for a token and keep it until it says (client.authentication.k8s.io/v1).
func (p *part) tokenCommand() string {
	return `exec:
      apiVersion: client.authentication.k8s.io/v1
      command: ` + p.facts.Program + `
      args: [token]
      interactiveMode: Never
      provideClusterInfo: false`
}

// systemdCredential is the name of the systemd credential that holds the service principal's secret; "" when it is elsewhere.
func (p *part) systemdCredential() string {
	sp := p.config.Azure.ServicePrincipal
	if sp == nil || path.IsAbs(sp.ClientSecretFile) {
		return ""
	}
	return sp.ClientSecretFile
}

func (p *part) clientCA() string { return path.Join(p.config.Paths.Kubernetes.CertsDir, "ca.crt") }

// kubeconfig is written by kubelet itself once it has a certificate.
func (p *part) kubeconfig() string { return KubeconfigPath(p.config.Paths.Kubernetes.KubeletDir) }

func (p *part) bootstrapKubeconfig() string {
	return path.Join(p.config.Paths.Kubernetes.KubeletDir, "bootstrap-kubeconfig")
}

// KubeconfigPath is the kubeconfig of a kubelet whose root directory is dir.
func KubeconfigPath(dir string) string { return path.Join(dir, "kubeconfig") }

// kubeconfigOf is a kubeconfig of the cluster for a user with the given credential.
func (p *part) kubeconfigOf(user, credential string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %[3]s
  user:
    %[4]s
contexts:
- name: %[3]s
  context:
    cluster: cluster
    user: %[3]s
current-context: %[3]s
`, p.facts.Server, base64.StdEncoding.EncodeToString([]byte(p.facts.CA)), user, credential)
}
