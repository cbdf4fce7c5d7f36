package node

import (
	"fmt"
	"path"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// credentials writes the cluster's CA, without which `kubectl logs` and `exec` are refused, and the
// credential with which kubelet authenticates or requests its certificate. A bootstrap token is
// removed as soon as kubelet has that certificate; an identity may request another one.
func credentials(p *part) {
	owes := []string{KubeletUnit}
	p.owe(owes, state.NewFile(p.clientCA(), 0o644, thisCA))
	if p.config.Node.AdminKubeconfig {
		p.add(state.NewFile(AdminKubeconfigPath(p.config.Paths.Kubernetes.ConfigDir), 0o600, thisAdmin))
	}
	identity := kubeconfigOf("identity", tokenCommand)
	switch {
	case p.config.Azure.ShowsToken():
		p.tokenScript()
		p.owe(kubeconfigReaders, state.NewFile(p.kubeconfig(), 0o600, identity))
		return
	case p.config.Azure.BootstrapToken == nil:
		p.tokenScript()
		p.owe(owes, state.NewFile(p.bootstrapKubeconfig(), 0o600, identity))
	default:
		p.only = Joining
		p.owe(owes, state.NewFile(p.bootstrapKubeconfig(), 0o600,
			kubeconfigOf("bootstrap", `token: "`+thisToken+`"`)))
	}
	// Kubelet writes its kubeconfig when it gets its certificate, and never updates the address or the
	// CA in it. When it rotates the certificate, it moves the link to the new one.
	file := ClientCertificatePath(p.config.Paths.Kubernetes.KubeletDir)
	p.only = Rebound
	p.owe(kubeconfigReaders, state.NewFile(p.kubeconfig(), 0o600,
		kubeconfigOf("kubelet", "client-certificate: "+file+"\n    client-key: "+file)))
}

// withoutToken removes the bootstrap token, which does not restart kubelet.
func withoutToken(p *part) {
	if p.config.Azure.BootstrapToken != nil && !p.config.Azure.ShowsToken() {
		p.put(state.Item{Resource: state.Absent{Path: p.bootstrapKubeconfig()}, Only: Joined})
	}
}

// kubeconfigReaders are the units that read kubelet's kubeconfig at their start.
var kubeconfigReaders = []string{KubeletUnit, NPDUnit}

// tokenScript renders a script for users who want kubelet's token; kubelet itself runs the program.
func (p *part) tokenScript() {
	file := path.Join(p.config.Paths.Kubernetes.KubeletDir, "token.sh")
	p.add(state.NewFile(file, 0o700, "#!/bin/sh\nexec "+thisProgram+" token \"$@\"\n"))
}

// tokenCommand makes client-go run the program for a token (client.authentication.k8s.io/v1).
const tokenCommand = `exec:
      apiVersion: client.authentication.k8s.io/v1
      command: ` + thisProgram + `
      args: [token]
      interactiveMode: Never
      provideClusterInfo: false`

func (p *part) clientCA() string { return path.Join(p.config.Paths.Kubernetes.CertsDir, "ca.crt") }

func (p *part) kubeconfig() string { return KubeconfigPath(p.config.Paths.Kubernetes.KubeletDir) }

func (p *part) bootstrapKubeconfig() string {
	return path.Join(p.config.Paths.Kubernetes.KubeletDir, "bootstrap-kubeconfig")
}

// KubeconfigPath returns the kubeconfig of a kubelet whose root directory is dir.
func KubeconfigPath(dir string) string { return path.Join(dir, "kubeconfig") }

// AdminKubeconfigPath returns the administrator's kubeconfig in paths.kubernetes.configDir.
func AdminKubeconfigPath(configDir string) string { return path.Join(configDir, "admin.conf") }

// ClientCertificatePath returns the client certificate and key of a kubelet with root dir.
func ClientCertificatePath(dir string) string {
	return path.Join(certDir(dir), "kubelet-client-current.pem")
}

// certDir returns the directory of certificates of a kubelet with root directory dir.
func certDir(dir string) string { return path.Join(dir, "pki") }

// kubeconfigOf returns a kubeconfig of the cluster for a user with the given credential.
func kubeconfigOf(user, credential string) string {
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
`, thisServer, thisCABase64, user, credential)
}
