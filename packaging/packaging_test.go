package packaging

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// setting returns what the agent's unit says, all of it where a name occurs often.
func setting(name string) []string { return settingOf(unit(AgentUnit), name) }

func settingOf(unit, name string) []string {
	var found []string
	lines := bufio.NewScanner(strings.NewReader(unit))
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok && key == name {
			found = append(found, value)
		}
	}
	return found
}

// READY does not wait for the cluster, so the start has an end, and boot does not hang.
func TestAgentUnitStartIsBounded(t *testing.T) {
	for _, name := range []string{"TimeoutStartSec", "TimeoutStopSec"} {
		values := setting(name)
		if len(values) != 1 {
			t.Fatalf("%s is given %d times", name, len(values))
		}
		if d, err := time.ParseDuration(values[0] + "s"); err != nil || d > 2*time.Minute {
			t.Errorf("%s=%s is not a number of seconds up to two minutes", name, values[0])
		}
	}
	if got := setting("RestartPreventExitStatus"); len(got) != 1 || got[0] != "3" {
		t.Errorf("RestartPreventExitStatus is %v; a wrong configuration must not restart the agent", got)
	}
}

func TestAgentUnitHardening(t *testing.T) {
	for name, want := range map[string]string{
		"NoNewPrivileges":         "yes",
		"LockPersonality":         "yes",
		"RestrictRealtime":        "yes",
		"RestrictNamespaces":      "yes",
		"SystemCallArchitectures": "native",
		"UMask":                   "0077",
	} {
		if got := setting(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %v, want %s", name, got, want)
		}
	}
	dropped := strings.Join(setting("CapabilityBoundingSet"), " ")
	if !strings.Contains(dropped, "CAP_SYS_TIME") {
		t.Errorf("the agent may set the clock: CapabilityBoundingSet is %s", dropped)
	}
}

// In a mount namespace of its own the agent would unmount pods' volumes for itself only, and then
// delete what is in them. ProtectClock= makes none, but takes away block devices.
func TestAgentUnitHasTheHostsMounts(t *testing.T) {
	for _, name := range []string{
		"BindPaths", "BindReadOnlyPaths", "DynamicUser", "ExecPaths", "InaccessiblePaths", "MountAPIVFS",
		"NoExecPaths", "PrivateDevices", "PrivateMounts", "PrivateTmp", "PrivateUsers", "ProcSubset",
		"ProtectClock", "ProtectControlGroups", "ProtectHome", "ProtectHostname", "ProtectKernelLogs",
		"ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "ProtectSystem",
		"ReadOnlyPaths", "ReadWritePaths", "RootDirectory", "RootImage", "TemporaryFileSystem", "User",
	} {
		if got := setting(name); len(got) > 0 {
			t.Errorf("the agent's unit has %s=%s", name, got[0])
		}
	}
}

// documents are the objects of a manifest.
func documents(t *testing.T, manifest string) (list []map[string]any) {
	t.Helper()
	for text := range strings.SplitSeq(manifest, "\n---\n") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if object != nil {
			list = append(list, object)
		}
	}
	return list
}

// value is what a path of names and indices leads to in an object.
func value(object any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := object.(map[string]any)
			object = m[p]
		case int:
			list, _ := object.([]any)
			if p >= len(list) {
				return nil
			}
			object = list[p]
		}
	}
	return object
}

// Ours lands on flex nodes and nowhere else, may do what kube-proxy has to and no more, and shows
// nothing to the network.
func TestKubeProxy(t *testing.T) {
	text, err := os.ReadFile("kubernetes/kube-proxy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifest := string(text)
	by := map[any]any{}
	for _, d := range documents(t, manifest) {
		by[d["kind"]] = d
	}
	if len(by) != 4 {
		t.Fatalf("it has %d kinds of objects, want 4", len(by))
	}
	config, _ := value(by["ConfigMap"], "data", "config").(string)
	settings := documents(t, config)[0]
	pod := value(by["DaemonSet"], "spec", "template", "spec")
	security := value(pod, "containers", 0, "securityContext")
	for _, tt := range []struct {
		name      string
		got, want any
	}{
		{"role", value(by["ClusterRoleBinding"], "roleRef", "name"), "system:node-proxier"},
		{"bound to", value(by["ClusterRoleBinding"], "subjects"), []any{map[string]any{
			"kind": "ServiceAccount", "namespace": "kube-system",
			"name": value(by["ServiceAccount"], "metadata", "name"),
		}}},
		{"runs as", value(pod, "serviceAccountName"), value(by["ServiceAccount"], "metadata", "name")},
		{"nodes", value(pod, "nodeSelector"), map[string]any{
			"kubernetes.io/os": "linux", "kubernetes.azure.com/managed": "false",
		}},
		{"capabilities", value(security, "capabilities"), map[string]any{
			"drop": []any{"ALL"}, "add": []any{"NET_ADMIN"},
		}},
		{"privileged", value(security, "privileged"), nil},
		{"writes", value(security, "readOnlyRootFilesystem"), true},
		{"volumes", len(value(pod, "volumes").([]any)), 1},
		{"metrics", settings["metricsBindAddress"], "127.0.0.1:10249"},
		{"health", settings["healthzBindAddress"], "127.0.0.1:10256"},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	for _, placeholder := range []string{" API-SERVER\n", "kube-proxy:vKUBERNETES-VERSION\n"} {
		if strings.Count(manifest, placeholder) != 1 {
			t.Errorf("%q does not occur once", placeholder)
		}
	}
}

// unit returns the text of a unit.
func unit(name string) string { return text("systemd/" + name) }

// text returns the text of a file of Files.
func text(name string) string {
	data, err := Files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(data)
}
