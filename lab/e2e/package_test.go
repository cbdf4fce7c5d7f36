package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// The versions of the agent's packages that the lab publishes.
const first, second, third = "1.0.0", "1.0.1", "1.0.2"

// packages joins a machine with a release's packages and scripts and upgrades it; after their
// removal the machine is unchanged. Installation starts no service; an upgrade, even in the middle
// of a join, and a downgrade do not restart kubelet; a node's package cannot be removed; and the
// two ways to install cannot be mixed.
func packages(t *testing.T) {
	t.Parallel()
	m := bareMachine(t, "package-1")
	if err := bench.PublishAgent(t.Context(), agent, first, second, third); err != nil {
		t.Fatal(err)
	}
	// The machine uses no other repositories.
	output(t, m, "sh", "-c", "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*")
	before := snapshot(t.Context(), t, m)
	for _, step := range []struct {
		name string
		run  func(*testing.T, lab.Machine)
	}{
		{"FromTheSources", installedFromTheSources},
		{"WithoutApt", installedWithoutApt},
		{"Install", installedNotStarted},
		{"UpgradeOfAJoin", joinsThroughUpgrade},
		{"Upgrade", upgradesAgentAlone},
		{"RemoveOfANode", nodeIsNotRemoved},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, m) }) {
			return
		}
	}
	must(t, m, "unbootstrap", "--yes")
	script(t, m, 0, "uninstall.sh", "--force")
	same(t, withoutRecords(before), withoutRecords(snapshot(t.Context(), t, m)))

	t.Run("Again", func(t *testing.T) { installedNotStarted(t, m) })
	output(t, m, "apt-get", "purge", "-q", "-y", "aks-flex-node", "aks-flex-node-archive-keyring")
	output(t, m, "rm", "/etc/apt/sources.list.d/aks-flex-node.sources")
	same(t, withoutRecords(before), withoutRecords(snapshot(t.Context(), t, m)))

	t.Run("AptAlone", func(t *testing.T) { livesByAptAlone(t, m) })
	same(t, withoutRecords(before), withoutRecords(snapshot(t.Context(), t, m)))
}

// keyring is the path of the archive's keys on a machine; its base name is also their name at the
// archive's URL.
const keyring = "/usr/share/keyrings/aks-flex-node-archive-keyring.gpg"

// With only apt and a configuration URL a machine joins, follows its resource through an upgrade
// and a downgrade, and leaves.
func livesByAptAlone(t *testing.T, m lab.Machine) {
	const sources = "/etc/apt/sources.list.d/aks-flex-node.sources"
	output(t, m, "curl", "-fsSL", "-o", keyring, lab.ArchiveURL+"/"+filepath.Base(keyring))
	if err := bench.Write(m, sources, 0o644, []byte("Types: deb\nURIs: "+lab.ArchiveURL+
		"\nSuites: stable\nComponents: main\nSigned-By: "+keyring+"\n")); err != nil {
		t.Fatal(err)
	}
	output(t, m, "apt-get", "update", "-q")
	output(t, m, "apt-get", "install", "-q", "-y", "aks-flex-node-archive-keyring")
	apt(t, m, second)
	serviceIs(t, m, "inactive\ndisabled\n")
	f := &followed{m.Name, desired{"versions": lab.Newest.Desired(), "nodeConfig": desired{}}}
	f.joins(t, m)
	serviceIs(t, m, "active\nenabled\n")
	for _, version := range []string{third, first} {
		apt(t, m, version)
		f.labels(t, "v"+version)
		if !ready(t, m) {
			t.Errorf("the Node is not Ready with %s", version)
		}
	}
	must(t, m, "unbootstrap", "--yes")
	rp(t, 200, http.MethodDelete, rpNode(f.name), nil)
	output(t, m, "apt-get", "purge", "-q", "-y", "aks-flex-node", "aks-flex-node-archive-keyring")
	output(t, m, "rm", "-f", sources, keyring)
}

// script pipes a script of the release into sh, as users do, and checks its exit code.
func script(t *testing.T, m lab.Machine, want int, name string, args ...string) string {
	t.Helper()
	pipe := "curl -fsSL " + lab.ArchiveURL + "/" + name + ` | sh -s -- "$@"`
	out, code := inside(t, m, append([]string{"sh", "-c", pipe, "sh"}, args...)...)
	if code != want {
		t.Fatalf("%s %s: exit code %d, want %d\n%s", name, strings.Join(args, " "), code, want, out)
	}
	return out
}

// withoutRecords removes the files of apt and dpkg.
func withoutRecords(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		for _, dir := range []string{"/var/lib/dpkg", "/var/lib/apt", "/var/log/apt"} {
			if strings.HasPrefix(line, "file "+dir) {
				return true
			}
		}
		return false
	})
}

// The sources' script installs the latest release from its only address.
func installedFromTheSources(t *testing.T, m lab.Machine) {
	text, err := os.ReadFile("../../scripts/install.sh")
	if err != nil {
		t.Fatal(err)
	}
	there := strings.TrimPrefix(lab.MirrorURL, "https://")
	curlrc := "connect-to = " + lab.ReleaseHost + ":443:" + there + "\n"
	if err := errors.Join(os.WriteFile(filepath.Join(m.Root, "root/install.sh"), text, 0o600),
		os.WriteFile(filepath.Join(m.Root, "root/.curlrc"), []byte(curlrc), 0o600)); err != nil {
		t.Fatal(err)
	}
	defer output(t, m, "rm", "/root/install.sh", "/root/.curlrc")
	if out := output(t, m, "sh", "/root/install.sh", "--dry-run"); !strings.Contains(out,
		"aks-flex-node="+third) {
		t.Errorf("it would not install %s:\n%s", third, out)
	}
}

// Without apt, the installed program has the digest in the script. A package beside it is refused,
// and it can be removed without a trace.
func installedWithoutApt(t *testing.T, m lab.Machine) {
	before := snapshot(t.Context(), t, m)
	script(t, m, 0, "install.sh", "--no-apt", "--dry-run")
	same(t, before, snapshot(t.Context(), t, m))

	spoiled := filepath.Join(bench.Dir, "packages/flexnode/programs/aks-flex-node_"+third+".service")
	text, err := os.ReadFile(spoiled)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(spoiled, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	out := script(t, m, 1, "install.sh", "--no-apt")
	if !strings.Contains(out, "is not what was released") {
		t.Errorf("it does not say what is wrong:\n%s", out)
	}
	if _, err := os.Lstat(filepath.Join(m.Root, "etc/systemd/system", service)); err == nil {
		t.Error("a file that was not released was installed")
	}
	if err := os.WriteFile(spoiled, text, 0o644); err != nil {
		t.Fatal(err)
	}

	script(t, m, 0, "install.sh", "--no-apt")
	serviceIs(t, m, "inactive\ndisabled\n")
	for _, way := range []string{"install.sh", "apt"} {
		out, code := "", 0
		if way == "apt" { // as a user who has the repository
			file := "aks-flex-node_" + first + "_" + runtime.GOARCH + ".deb"
			output(t, m, "curl", "-fsSL", "-o", "/tmp/x.deb",
				lab.ArchiveURL+"/pool/main/a/aks-flex-node/"+file)
			out, code = inside(t, m, "dpkg", "--install", "/tmp/x.deb")
		} else {
			out, code = script(t, m, 1, way), 1
		}
		if code == 0 || !strings.Contains(out, "/usr/local/bin/aks-flex-node") ||
			!strings.Contains(out, "uninstall.sh") {
			t.Errorf("%s beside install.sh: exit code %d\n%s", way, code, out)
		}
	}
	output(t, m, "/usr/local/lib/aks-flex-node/uninstall.sh", "--force")
	same(t, withoutRecords(before), withoutRecords(snapshot(t.Context(), t, m)))
}

// serviceIs checks whether the agent's service is active and enabled.
func serviceIs(t *testing.T, m lab.Machine, want string) {
	t.Helper()
	out, _ := inside(t, m, "sh", "-c",
		"systemctl is-active "+service+"; systemctl is-enabled "+service)
	if out != want {
		t.Errorf("the service is %q, want %q", out, want)
	}
}

// packageIs returns the state and version of the installed package.
func packageIs(t *testing.T, m lab.Machine) string {
	t.Helper()
	return output(t, m, "dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", "aks-flex-node")
}

// An installed service is neither enabled nor started; the program, its manual and its sample are
// in the usual places.
func installedNotStarted(t *testing.T, m lab.Machine) {
	script(t, m, 0, "install.sh", "--version", first)
	if got := packageIs(t, m); got != "installed "+first {
		t.Errorf("the package is %q", got)
	}
	serviceIs(t, m, "inactive\ndisabled\n")
	out := output(t, m, "sh", "-c", "command -v aks-flex-node; stat -c '%a %U' /etc/aks-flex-node "+
		"/etc/aks-flex-node/config.json.sample")
	if want := "/usr/bin/aks-flex-node\n755 root\n600 root\n"; out != want {
		t.Errorf("found\n%s, want\n%s", out, want)
	}
}

// apt installs a version of the agent.
func apt(t *testing.T, m lab.Machine, version string) {
	t.Helper()
	output(t, m, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-q", "-y",
		"--allow-downgrades", "aks-flex-node="+version)
	if got := packageIs(t, m); got != "installed "+version {
		t.Errorf("the package is %q, want %s", got, version)
	}
}

// A join finishes although the agent is upgraded in the middle.
func joinsThroughUpgrade(t *testing.T, m lab.Machine) {
	azure, err := bench.Identify(t.Context(), m, "bootstrapToken")
	if err != nil {
		t.Fatal(err)
	}
	config, err := bench.Config(t.Context(), m, lab.Newest, azure)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := bench.Write(m, lab.ConfigPath, 0o600, text); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "enable", "--now", service)
	eventually(t, "the transition", func() bool {
		_, err := os.Stat(filepath.Join(m.Root, "var/lib/aks-flex-node/transition.json"))
		return err == nil
	})
	apt(t, m, second)
	eventually(t, "the Node", func() bool {
		_, busy := os.Stat(filepath.Join(m.Root, "var/lib/aks-flex-node/transition.json"))
		return busy != nil && ready(t, m)
	})
	serviceIs(t, m, "active\nenabled\n")
}

// An upgrade or downgrade restarts the agent, but not kubelet and containerd.
func upgradesAgentAlone(t *testing.T, m lab.Machine) {
	begun := func(units ...string) string {
		return output(t, m, append([]string{"systemctl", "show", "--value", "-p",
			"ExecMainStartTimestampMonotonic,MainPID"}, units...)...)
	}
	kubelet, agent := begun("kubelet", "containerd"), begun(service)
	for _, version := range []string{third, first} {
		apt(t, m, version)
		serviceIs(t, m, "active\nenabled\n")
		if now := begun("kubelet", "containerd"); now != kubelet {
			t.Errorf("%s has restarted kubelet or containerd:\n%s, was\n%s", version, now, kubelet)
		}
		now := begun(service)
		if now == agent {
			t.Errorf("%s has not restarted the agent", version)
		}
		agent = now
	}
	if out, code := flex(t, m, "drift"); code != 0 {
		t.Errorf("drift: exit code %d\n%s", code, out)
	}
}

// A node's program cannot be removed in any way; the error names the command to run first.
func nodeIsNotRemoved(t *testing.T, m lab.Machine) {
	out, code := inside(t, m, "apt-get", "remove", "-q", "-y", "aks-flex-node")
	if code == 0 || !strings.Contains(out, "Run `aks-flex-node unbootstrap` first") {
		t.Errorf("apt-get remove: exit code %d\n%s", code, out)
	}
	if out := script(t, m, 1, "uninstall.sh", "--force"); !strings.Contains(out,
		"aks-flex-node unbootstrap") {
		t.Errorf("uninstall.sh: %s", out)
	}
	if got := packageIs(t, m); got != "installed "+first {
		t.Errorf("the package is %q", got)
	}
	serviceIs(t, m, "active\nenabled\n")
}
