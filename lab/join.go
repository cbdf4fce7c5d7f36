package lab

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/Azure/AKSFlexNode/internal/policy"
)

// Versions holds the versions of a node's components.
type Versions struct {
	Kubernetes, Containerd string
}

// The combinations of versions in the lab. Newest is the control plane's. From Oldest to Former
// only Kubernetes changes, by minor versions; from Former to Newest Kubernetes changes by a patch,
// and containerd.
var (
	Newest = Versions{Kubernetes: "1.36.3", Containerd: "2.3.4"}
	Former = Versions{Kubernetes: "1.36.2", Containerd: "2.1.9"}
	Oldest = Versions{Kubernetes: "1.34.4", Containerd: "2.1.9"}
)

// The components of which the lab has only one version.
const (
	runcVersion = "1.4.3"
	cniVersion  = "1.9.1"
	npdVersion  = "1.34.0"
)

// Desired returns the versions in the form of a flexNodeConfig.
func (v Versions) Desired() map[string]any {
	return object{"kubernetes": v.Kubernetes, "containerd": v.Containerd, "runc": runcVersion,
		"cni": cniVersion, "npd": npdVersion}
}

// ConfigPath is the path of the agent's configuration on a machine.
const ConfigPath = "/etc/aks-flex-node/config.json"

// PolicyPath is the path of a machine's policy.
const PolicyPath = policy.File

// machinePolicy allows the lab's provider to deliver programs built here, with overrides and from
// the lab's mirror.
const machinePolicy = `{
  "hosts": {"downloads": ["` + HostIP + `"]},
  "allow": {"overrides": true}
}
`

// object is a JSON object.
type object = map[string]any

// Token creates a bootstrap token that is valid for a day, as an operator would.
func (l *Lab) Token(ctx context.Context) (string, error) {
	id, secret := random(6), random(16)
	manifest := fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-%s, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData:
  token-id: "%s"
  token-secret: "%s"
  expiration: "%s"
  usage-bootstrap-authentication: "true"
  auth-extra-groups: system:bootstrappers:aks-flex-node
`, id, id, secret, time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339))
	if _, err := l.apply(ctx, manifest); err != nil {
		return "", fmt.Errorf("cannot make a bootstrap token: %w", err)
	}
	return id + "." + secret, nil
}

func random(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b strings.Builder
	for range n {
		i, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
		if err != nil {
			panic("internal error: no randomness: " + err.Error())
		}
		b.WriteByte(letters[i.Int64()])
	}
	return b.String()
}

// Auths are the values of --auth: the ways to join. All but the first need the lab's Azure.
var Auths = []string{"bootstrapToken", "servicePrincipal", "managedIdentity", "arc", "azureCLI"}

// Identify prepares a machine to join in one of the ways, and returns the azure section of its
// configuration.
func (l *Lab) Identify(ctx context.Context, m Machine, auth string) (map[string]any, error) {
	section := object{"targetCluster": object{"resourceId": ClusterID, "location": "lab"}}
	if auth == "bootstrapToken" {
		token, err := l.Token(ctx)
		section["bootstrapToken"] = object{"token": token}
		return section, err
	}
	if !l.HasAzure() {
		return nil, fmt.Errorf("cannot join with %s: the lab has no Azure; "+
			"start it with `flexlab up --azure`", auth)
	}
	who, err := l.Azure()
	if err != nil {
		return nil, err
	}
	maps.Copy(section, object{"tenantId": Tenant, "authorityHost": AzureURL,
		"resourceManagerEndpoint": AzureURL})
	switch auth {
	case "servicePrincipal":
		section["servicePrincipal"] = object{"clientId": who.Node.ClientID,
			"clientSecret": who.Node.Secret}
		section["kubeletCredential"] = "token"
	case "managedIdentity":
		section["managedIdentity"], section["kubeletCredential"] = object{}, "token"
		err = l.AddVMIdentity(ctx, m)
	case "arc":
		section["servicePrincipal"] = object{"clientId": who.Operator.ClientID,
			"clientSecret": who.Operator.Secret}
		section["arc"] = object{"machineName": m.Name, "autoRoleAssignment": true}
		section["arc"].(object)["package"], err = l.UseArcRepository(ctx, m)
	case "azureCLI":
		section["arc"] = object{"machineName": m.Name, "autoRoleAssignment": true}
		err = l.AddArc(ctx, m)
	default:
		err = fmt.Errorf("cannot join with %q: it must be one of %s", auth, strings.Join(Auths, ", "))
	}
	return section, err
}

// Config returns the agent's configuration for a machine, with the given azure section.
func (l *Lab) Config(
	ctx context.Context, m Machine, v Versions, azure map[string]any,
) (map[string]any, error) {
	catalog, err := l.artifacts(ctx, v)
	if err != nil {
		return nil, err
	}
	overrides, err := catalog.Overrides(v.artifacts())
	if err != nil {
		return nil, err
	}
	kubelet := object{"dnsServiceIP": DNSService}
	if _, token := azure["bootstrapToken"]; token { // other ways get them from Azure
		ca, err := l.ClusterCA()
		if err != nil {
			return nil, err
		}
		kubelet["serverURL"], kubelet["caCertData"] = APIServer, base64.StdEncoding.EncodeToString(ca)
	}
	cni := object{"version": cniVersion}
	if !l.Plain {
		cni["nonMasqueradeCIDRs"] = strings.Split(l.networks(PodCIDR, PodCIDR6), ",")
	}
	return object{
		"azure":      azure,
		"kubernetes": object{"version": v.Kubernetes},
		"containerd": object{"version": v.Containerd},
		"runc":       object{"version": runcVersion},
		"cni":        cni,
		"npd":        object{"version": npdVersion},
		"node":       object{"kubelet": kubelet},
		"agent":      object{"nodeName": m.Name},
		"artifacts":  object{"mirror": MirrorURL, "overrides": overrides},
	}, nil
}

// Prepare installs the agent, its unit and its configuration on a machine, as its owner would.
func (l *Lab) Prepare(ctx context.Context, m Machine, agent string, config map[string]any) error {
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return l.PrepareText(m, agent, append(text, '\n'))
}

// PrepareText is Prepare with a configuration as text.
func (l *Lab) PrepareText(m Machine, agent string, config []byte) error {
	if err := l.Install(m, agent); err != nil {
		return err
	}
	return l.Write(m, ConfigPath, 0o600, config)
}

// Install installs the agent and its unit on a machine, without a configuration.
func (l *Lab) Install(m Machine, agent string) error {
	program, err := os.ReadFile(agent)
	if err != nil {
		return fmt.Errorf("cannot read the agent: %w; run `make build`", err)
	}
	const unit = "/etc/systemd/system/aks-flex-node-agent.service"
	if err := l.Write(m, "/usr/local/bin/aks-flex-node", 0o755, program); err != nil {
		return err
	}
	text, err := l.packaged("systemd/aks-flex-node-agent.service")
	if err != nil {
		return err
	}
	return l.Write(m, unit, 0o644, []byte(text))
}

// Write writes a file on a machine.
func (l *Lab) Write(m Machine, path string, mode os.FileMode, data []byte) error {
	full := filepath.Join(m.Root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return fmt.Errorf("cannot write %s in %s: %w", path, m.Name, err)
	}
	_ = os.Remove(full) // a running program cannot be overwritten
	// A process forked meanwhile would inherit the open file, and until it calls exec the program
	// could not be run ("text file busy").
	syscall.ForkLock.RLock()
	err := os.WriteFile(full, data, mode)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return fmt.Errorf("cannot write %s in %s: %w", path, m.Name, err)
	}
	return os.Chmod(full, mode)
}

// Join joins a machine: identity, configuration, and `aks-flex-node bootstrap` on the machine, with
// its output on out and errOut.
func (l *Lab) Join(
	ctx context.Context, m Machine, agent string, v Versions, auth string, out, errOut io.Writer,
) error {
	azure, err := l.Identify(ctx, m, auth)
	if err != nil {
		return err
	}
	config, err := l.Config(ctx, m, v, azure)
	if err != nil {
		return err
	}
	if err := l.Prepare(ctx, m, agent, config); err != nil {
		return err
	}
	cmd, err := l.Command(ctx, m, "aks-flex-node", "bootstrap")
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = out, errOut
	return cmd.Run()
}
