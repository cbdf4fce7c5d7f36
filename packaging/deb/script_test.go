package deb

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// calls are dpkg's calls of maintainer scripts, including those after a failed installation,
// upgrade or removal (Debian Policy 6.5).
var calls = map[string][]string{
	"preinst": {"install", "install 1", "upgrade 1", "abort-upgrade 2"},
	"postinst": {"configure", "configure 1", "abort-upgrade 2", "abort-remove",
		"abort-remove in-favour x 2", "abort-deconfigure in-favour x 2", "triggered x"},
	"prerm": {"remove", "upgrade 2", "remove in-favour x 2", "deconfigure in-favour x 2",
		"failed-upgrade 1"},
	"postrm": {"remove", "purge", "upgrade 2", "failed-upgrade 1", "abort-install",
		"abort-install 1", "abort-upgrade 1", "disappear x 2"},
}

// write writes a file and creates its directories.
func write(path string, mode os.FileMode, data []byte) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, mode))
}

// attempt runs a maintainer script on a root with the given files. It returns the remaining files,
// the helpers called and the script's exit error.
func attempt(t *testing.T, name, call string, environment []string, files ...string) (
	remain map[string]bool, helpers string, err error,
) {
	t.Helper()
	text, err := scripts.ReadFile("scripts/" + name)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	script := string(text)
	for _, top := range []string{"/etc/", "/var/", "/run/", "/usr/local/"} {
		script = strings.ReplaceAll(script, top, root+top)
	}
	for _, file := range append(files, "run/systemd/system/x") {
		if err := write(filepath.Join(root, file), 0o644, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, helper := range []string{"deb-systemd-helper", "deb-systemd-invoke", "systemctl",
		"systemd-sysusers", "chown"} {
		line := "#!/bin/sh\necho \"${0##*/} $*\" >>" + root + "/helpers\nexit ${HELPERS:-0}\n"
		if err := write(filepath.Join(root, "bin", helper), 0o755, []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", append([]string{"-c", script, "script"}, strings.Fields(call)...)...)
	cmd.Env = append([]string{"PATH=" + root + "/bin:/usr/bin:/bin"}, environment...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s %s: %s", name, call, out)
	said, _ := os.ReadFile(filepath.Join(root, "helpers"))
	remain = map[string]bool{}
	if err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		remain[strings.TrimPrefix(path, root+"/")] = true
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return remain, string(said), err
}

// Only purge deletes files, only on a machine that is not a node, and never files of others in
// /etc.
func TestWhatDeletes(t *testing.T) {
	const config, other, log = "etc/aks-flex-node/config.json", "etc/aks-flex-node/other",
		"var/log/aks-flex-node/x"
	const bundle = "var/lib/aks-flex-node/bundle.json"
	for script, list := range calls {
		for _, call := range list {
			remain, _, err := attempt(t, "aks-flex-node."+script, call, nil, config, other, log, bundle)
			purged := call == "purge"
			if err != nil || remain[config] == purged || remain[log] == purged ||
				remain[bundle] == purged || !remain[other] {
				t.Errorf("%s %s: %v; left is %v", script, call, err, remain)
			}
		}
	}
	for _, record := range recordsOfANode {
		remain, _, err := attempt(t, "aks-flex-node.postrm", "purge", nil, config, record)
		if err != nil || !remain[config] || !remain[record] {
			t.Errorf("a node with %s is purged: %v; left is %v", record, err, remain)
		}
	}
}

// recordsOfANode are files that show that a machine is a node, even without its ledger.
var recordsOfANode = []string{
	"var/lib/aks-flex-node/ledger.json", "var/lib/aks-flex-node/node-ledger.json",
	"var/lib/aks-flex-node/transition.json", "var/lib/aks-flex-node/join-state.json",
}

// A node's program is not removed unless the operator asks for it; it can be upgraded, and restored
// after a failed upgrade. Only a removal stops the agent, only an upgrade restarts it.
func TestCallsOfANode(t *testing.T) {
	const ledger = "var/lib/aks-flex-node/ledger.json"
	keep := []string{"AKS_FLEX_NODE_REMOVE=keep"}
	for script, list := range calls {
		for _, call := range list {
			removes := script == "prerm" && strings.HasPrefix(call, "remove")
			for _, record := range recordsOfANode {
				_, helpers, err := attempt(t, "aks-flex-node."+script, call, nil, record)
				if (err != nil) != removes || removes && helpers != "" {
					t.Errorf("%s %s with %s: %v, %s", script, call, record, err, helpers)
				}
			}
			_, helpers, err := attempt(t, "aks-flex-node."+script, call, keep, ledger)
			restarts := script == "postinst" && call == "configure 1"
			if err != nil || strings.Contains(helpers, "invoke stop") != removes ||
				strings.Contains(helpers, "invoke try-restart") != restarts ||
				strings.Contains(helpers, "kubelet") || strings.Contains(helpers, "containerd") {
				t.Errorf("%s %s, kept: %v, %s", script, call, err, helpers)
			}
		}
	}
}

// A package can be removed where systemd does not respond, as in an image build.
func TestRemovedWithoutSystemd(t *testing.T) {
	for _, name := range []string{"aks-flex-node.prerm", "flexnode-rp.prerm"} {
		_, helpers, err := attempt(t, name, "remove", []string{"HELPERS=1"})
		if err != nil || !strings.Contains(helpers, "invoke stop") {
			t.Errorf("%s: %v, %s", name, err, helpers)
		}
	}
}

// A package does not install beside a program or unit of install.sh, which would take precedence.
// An installed package can be upgraded.
func TestBesideInstallScript(t *testing.T) {
	for _, file := range []string{"usr/local/bin/aks-flex-node",
		"etc/systemd/system/aks-flex-node-agent.service"} {
		for _, call := range calls["preinst"] {
			_, _, err := attempt(t, "aks-flex-node.preinst", call, nil, file)
			if (err != nil) != strings.HasPrefix(call, "install") {
				t.Errorf("%s beside %s: %v", call, file, err)
			}
		}
	}
}

// The provider's scripts delete its store and keys only at purge.
func TestProviderScripts(t *testing.T) {
	const keys, store, other = "etc/flexnode-rp/keys.json", "var/lib/flexnode-rp/x",
		"etc/flexnode-rp/tls.key"
	for script, list := range calls {
		if _, err := scripts.ReadFile("scripts/flexnode-rp." + script); err != nil {
			continue
		}
		for _, call := range list {
			remain, helpers, err := attempt(t, "flexnode-rp."+script, call, nil, keys, store, other)
			purged := call == "purge"
			if err != nil || remain[keys] == purged || remain[store] == purged || !remain[other] {
				t.Errorf("%s %s: %v; left is %v", script, call, err, remain)
			}
			users := script == "postinst" && strings.HasPrefix(call, "configure")
			if strings.Contains(helpers, "systemd-sysusers") != users {
				t.Errorf("%s %s calls %s", script, call, helpers)
			}
		}
	}
}

// A directory that cannot be removed, since a disk is mounted there, keeps no secrets elsewhere.
func TestPurgeOfAMount(t *testing.T) {
	bin := t.TempDir()
	rm := "#!/bin/sh\n[ \"$1\" != -rf ] || exit 1\nexec /bin/rm \"$@\"\n"
	if err := write(filepath.Join(bin, "rm"), 0o755, []byte(rm)); err != nil {
		t.Fatal(err)
	}
	for script, secret := range map[string]string{
		"flexnode-rp.postrm":   "etc/flexnode-rp/keys.json",
		"aks-flex-node.postrm": "etc/aks-flex-node/config.json",
	} {
		path := []string{"PATH=" + bin + ":/usr/bin:/bin"}
		remain, _, err := attempt(t, script, "purge", path, secret)
		if err != nil || remain[secret] {
			t.Errorf("%s: %v, %v", script, err, remain)
		}
	}
}

func TestShellcheck(t *testing.T) {
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("shellcheck is not on this machine")
	}
	list, err := filepath.Glob("scripts/*")
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	if out, err := exec.Command("shellcheck", list...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
