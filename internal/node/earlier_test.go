package node

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// A node of the release before placeholders (commit bd1efd1, whose golden files testdata/bd1efd1
// holds; they are never updated) has the same bytes when it is rendered now, but for what is listed
// here.
func TestBytesOfTheReleaseBefore(t *testing.T) {
	for _, e := range examples() {
		if e.earlier {
			c, f, b := e.inputs()
			compareWithEarlier(t, e.name, Bind(Render(c, f), b), b)
		}
	}
	for _, path := range bundles(t) {
		name, c := bundle(t, path)
		if c.Azure.ArcEnabled() && c.Azure.ServicePrincipal != nil {
			continue // no bundle of the release before had one that enrols the machine
		}
		if c.Azure.ArcEnabled() { // the release before had another default
			c.Azure.KubeletCredential = config.CredentialToken
		}
		c.Node.Kubelet = withoutSafety(c.Node.Kubelet)
		b := bindings()
		b.ForeignArc = true // the release before installed none
		compareWithEarlier(t, name, Bind(Render(c, facts()), b), b)
	}
}

// withoutSafety is what a node of the release before has: no settings that it did not know.
func withoutSafety(k config.Kubelet) config.Kubelet {
	k.SeccompDefault, k.PodPidsLimit = nil, nil
	k.ShutdownGracePeriod, k.ShutdownGracePeriodCriticalPods = "", ""
	return k
}

// compareWithEarlier compares what waits for nothing that is unknown: the release before left out
// the rest.
func compareWithEarlier(t *testing.T, name string, d state.Desired, b Bindings) {
	t.Helper()
	old, err := os.ReadFile(filepath.Join("testdata", "bd1efd1", name+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	now, _, _ := d.Cut(func(need state.Need) bool { return cut(b, need) })
	want, got := blocks(t, withoutRegistration(string(old))), blocks(t, asEarlier(text(now)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is not as the release before had it (-then +now):\n%s", name, diff)
	}
}

// withoutRegistration takes labels and taints, and the directory of the log, out of the files of
// the release before.
func withoutRegistration(old string) string {
	old = strings.Replace(old, "directories: make directory /var/log/aks-flex-node\n"+
		"  a directory of mode 0750, owner 0:0\n", "", 1)
	old = regexp.MustCompile(`(?m)^  \|   --node-labels=.*\n`).ReplaceAllString(old, "")
	const taints = `(?m)^  \|   "registerWithTaints": \[\n(?:  \|    .*\n)*  \|   \],\n`
	return regexp.MustCompile(taints).ReplaceAllString(old, "")
}

// asEarlier takes out what the release before did not have: the file of labels and taints with its
// use in kubelet's unit, the restart of the node-problem-detector for a new kubeconfig, and what an
// item needs, the forwarding of IPv6, kube-proxy's tables, and what needrestart leaves alone. It
// undoes what the CIS benchmark and the owner's sysctl.conf have changed: places, modes, names of
// cipher suites, and containerd's limit of open files.
func asEarlier(now string) string {
	for _, added := range []string{
		`kubelet: write /etc/kubernetes/aks-flex-node-registration.env\n(?:  .*\n)*`,
		`start: remember nftables tables kube-proxy\n(?:  .*\n)*`,
		`directories: make directory /etc/needrestart.*\n(?:  .*\n)*`,
		`system: write /etc/needrestart/conf.d/aks-flex-node.conf\n(?:  .*\n)*`,
		`cni: (?:write /etc/sysctl.d/999-aks-flex-node-ipv6.conf|set net.ipv6.*)\n(?:  .*\n)*`,
		`  \| EnvironmentFile=/etc/kubernetes/aks-flex-node-registration.env\n`,
		`  \|   \$KUBELET_REGISTRATION_ARGS \\\n`,
		`  (?:needs|only) .*\n`,
	} {
		now = regexp.MustCompile(`(?m)^`+added).ReplaceAllString(now, "")
	}
	return strings.NewReplacer(
		"  owes kubelet.service node-problem-detector.service\n", "  owes kubelet.service\n",
		"/etc/sysctl.d/999-", "/etc/sysctl.d/99-",
		"write /var/lib/kubelet/config.yaml\n  mode 0600",
		"write /etc/kubernetes/kubelet.yaml\n  mode 0644",
		"--config=/var/lib/kubelet/config.yaml", "--config=/etc/kubernetes/kubelet.yaml",
		"kubelet.service\n  mode 0600", "kubelet.service\n  mode 0644",
		"CHACHA20_POLY1305\"", "CHACHA20_POLY1305_SHA256\"",
		"  | LimitNPROC=infinity\n", "  | LimitNOFILE=infinity\n  | LimitNPROC=infinity\n",
	).Replace(now)
}

// blocks takes the text of a node apart, by the first line of each item.
func blocks(t *testing.T, node string) map[string]string {
	t.Helper()
	items := map[string]string{}
	name := ""
	for line := range strings.Lines(node) {
		if !strings.HasPrefix(line, "  ") {
			name = line
			if _, twice := items[name]; twice {
				t.Fatalf("%q is there twice", name)
			}
		}
		items[name] += line
	}
	return items
}
