package flexnode

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/Azure/AKSFlexNode/"

// rules hold the arrows of ARCHITECTURE.md: which packages of ours a room may import, and which
// parts of the standard library it may not.
var rules = []struct {
	room   string
	allows []string // packages of ours
	bans   []string // of the standard library and others
}{
	{"internal/state", nil, []string{"os", "net", "os/exec", "time", "net/http"}},
	{"internal/release", nil, []string{"os", "net", "os/exec", "time", "net/http"}},
	{"internal/wait", nil, []string{"os", "net", "os/exec", "net/http"}},
	{"internal/distro", nil, []string{"os", "net", "os/exec", "time", "net/http"}},
	{"internal/remove", nil, []string{"net", "os/exec", "net/http"}},
	{"internal/regular", nil, []string{"net", "os/exec", "net/http"}},
	{"internal/config", []string{"internal/regular", "internal/release"}, []string{"os/exec"}},
	{"internal/config/leftopen", []string{"internal/config"},
		[]string{"os", "net", "net/http", "os/exec"}},
	{"internal/policy", []string{"internal/config", "internal/release"},
		[]string{"os", "net", "os/exec", "time", "net/http"}},
	{"internal/node", []string{"internal/config", "internal/distro", "internal/state"},
		[]string{"os", "net", "os/exec", "time", "net/http", "math/rand", "math/rand/v2"}},
	{"internal/host",
		[]string{"internal/distro", "internal/regular", "internal/remove", "internal/state",
			"internal/wait"},
		[]string{"net/http"}},
	{"internal/apply", []string{"internal/state"}, []string{"os", "net", "os/exec", "net/http"}},
	{"internal/history", []string{"internal/config", "internal/generation", "internal/node",
		"internal/state", "internal/transition"}, []string{"os", "net", "os/exec", "net/http"}},
	{"internal/generation",
		[]string{"internal/apply", "internal/config", "internal/node", "internal/state"},
		[]string{"os", "net", "os/exec", "net/http", "time"}},
	{"internal/follow",
		[]string{"api/flexnode/agentapi", "api/flexnode/sealed", "internal/config",
			"internal/identity", "internal/machinekey", "internal/signing", "internal/transition",
			"internal/untrusted", "internal/wait"},
		[]string{"os", "os/exec"}},
	{"internal/transition", nil, []string{"os", "net", "os/exec", "net/http"}},
	{"internal/daemon", []string{"internal/transition", "internal/untrusted", "internal/wait"},
		[]string{"os", "net", "os/exec", "net/http"}},
	{"internal/artifact",
		[]string{"internal/config", "internal/regular", "internal/release", "internal/remove",
			"internal/wait"},
		[]string{"os/exec"}},
	{"internal/progress", []string{"internal/apply", "internal/state", "internal/untrusted"},
		[]string{"net", "os/exec"}},
	{"internal/kube", []string{"internal/wait"}, []string{"os/exec"}},
	{"internal/health", []string{"internal/config", "internal/distro", "internal/host",
		"internal/kube", "internal/release", "internal/transition", "internal/untrusted"},
		[]string{"os", "net", "os/exec", "net/http"}},
	{"internal/endpoint", []string{"internal/artifact", "internal/config", "internal/health"},
		[]string{"os", "net", "os/exec", "net/http"}},
	{"internal/nodeobject", []string{"internal/config", "internal/kube", "internal/state"},
		[]string{"os", "net", "os/exec", "net/http"}},
	{"internal/arm", nil, []string{"os", "net", "os/exec"}},
	{"api/flexnode/agentapi", nil, []string{"os", "net", "net/http", "os/exec"}},
	{"api/flexnode/v20260501preview", []string{"api/flexnode/agentapi"},
		[]string{"os", "net", "net/http", "os/exec"}},
	{"api/flexnode/sealed", nil, []string{"os", "net", "net/http", "os/exec"}},
	{"internal/rp/flexnode", []string{
		"api/flexnode/v20260501preview", "internal/arm", "internal/config",
		"internal/config/leftopen", "internal/release", "internal/untrusted",
	}, []string{"os", "net", "net/http", "os/exec"}},
	{"internal/rp/store", []string{
		"api/flexnode/v20260501preview", "internal/rp/flexnode", "internal/rp/seal",
		"internal/rp/store/kv", "internal/wait",
	}, []string{"net/http", "os/exec"}},
	{"internal/rp/store/kv", nil, []string{"os", "net", "net/http", "os/exec"}},
	{"internal/rp/credential", []string{
		"api/flexnode/v20260501preview", "internal/arm", "internal/rp/flexnode", "internal/rp/seal",
		"internal/rp/store", "internal/signing",
	}, []string{"os", "net", "os/exec"}},
	{"internal/rp/cluster", []string{
		"api/flexnode/v20260501preview", "internal/arm", "internal/rp/credential",
		"internal/rp/flexnode", "internal/rp/rollout", "internal/rp/store", "internal/untrusted",
	}, []string{"os/exec"}},
	{"internal/rp/rollout", []string{
		"api/flexnode/agentapi", "api/flexnode/v20260501preview", "internal/config",
		"internal/rp/flexnode", "internal/rp/store",
	}, []string{"os", "net", "net/http", "os/exec"}},
	{"internal/rp/fair", nil, []string{"os", "os/exec"}},
	{"internal/rp/seal", []string{"internal/signing", "internal/signing/rootkey"},
		[]string{"os/exec", "net", "net/http"}},
	{"internal/signing", nil, []string{"os", "net", "net/http", "os/exec"}},
	{"internal/signing/rootkey", []string{"internal/signing"},
		[]string{"os", "net", "net/http", "os/exec"}},
	{"internal/machinekey", nil, []string{"os", "net", "net/http", "os/exec"}},
	{"internal/machinekey/verifier", []string{"internal/machinekey"},
		[]string{"os", "net", "net/http", "os/exec"}},
	{"internal/rp/front", []string{
		"api/flexnode/sealed", "api/flexnode/v20260501preview", "internal/arm",
		"internal/machinekey", "internal/machinekey/verifier", "internal/rp/credential",
		"internal/rp/fair", "internal/rp/flexnode", "internal/rp/seal", "internal/rp/store",
	}, []string{"os", "os/exec", "net"}},
	{"internal/prepare", []string{"internal/release", "manifests"}, []string{"os", "os/exec"}},
	{"internal/rp/service", []string{
		"docs/api", "internal/config", "internal/rp/cluster", "internal/rp/credential",
		"internal/rp/fair", "internal/rp/flexnode", "internal/rp/front", "internal/rp/seal",
		"internal/rp/store",
	}, []string{"os/exec"}},
	{"internal/azuresim", []string{"internal/arm", "internal/azuresim/template"},
		[]string{"os/exec"}},
	{"internal/azuresim/template", nil, []string{"os", "os/exec", "net", "net/http", "time"}},
	{"internal/identity", []string{"internal/config", "internal/regular", "internal/wait"},
		[]string{"os/exec"}},
	{"internal/aks", []string{"internal/config", "internal/identity"}, []string{"os", "os/exec"}},
	{"internal/arc",
		[]string{"internal/config", "internal/distro", "internal/identity", "internal/state",
			"internal/wait"},
		[]string{"os", "os/exec"}},
	{"internal/access", []string{
		"internal/aks", "internal/apply", "internal/arc", "internal/config", "internal/health",
		"internal/host", "internal/identity", "internal/kube", "internal/node", "internal/state",
		"internal/transition", "internal/wait",
	}, []string{"os", "os/exec"}},
	{"internal/agent/inspect", []string{
		"internal/access", "internal/agent/saved", "internal/apply", "internal/config",
		"internal/generation", "internal/health", "internal/history", "internal/host",
		"internal/kube", "internal/node", "internal/nodeobject", "internal/progress",
		"internal/state", "internal/transition",
	}, []string{"os/exec"}},
	{"internal/agent/change", []string{
		"internal/access", "internal/agent/inspect", "internal/agent/saved", "internal/apply",
		"internal/artifact", "internal/config",
		"internal/follow", "internal/generation", "internal/health", "internal/history",
		"internal/host", "internal/kube", "internal/node", "internal/nodeobject",
		"internal/progress", "internal/state", "internal/transition", "internal/wait",
	}, []string{"os/exec"}},
	{"internal/agent/service", []string{
		"api/flexnode/agentapi", "internal/agent/change", "internal/agent/inspect",
		"internal/agent/saved", "internal/config", "internal/daemon", "internal/follow",
		"internal/health", "internal/history", "internal/metrics", "internal/progress",
		"internal/state", "internal/transition", "internal/wait",
	}, []string{"os/exec"}},
	{"internal/agent/support", []string{
		"internal/agent/change", "internal/agent/inspect", "internal/agent/saved",
		"internal/config", "internal/endpoint", "internal/health", "internal/host",
		"internal/kube", "internal/node", "internal/redact",
	}, []string{"os/exec"}},
	{"internal/agent/diagnose", []string{
		"api/flexnode/agentapi", "internal/agent/change", "internal/agent/support", "internal/health",
	}, []string{"os", "os/exec"}},
	{"internal/agent/saved", []string{
		"internal/apply", "internal/config", "internal/generation", "internal/history", "internal/kube",
		"internal/machinekey", "internal/node", "internal/policy", "internal/state",
		"internal/transition",
	}, []string{"os/exec", "net", "net/http"}},
	{"internal/metrics", nil, []string{"os", "net", "net/http", "os/exec", "time"}},
	{"internal/untrusted", nil, []string{"os", "os/exec", "net", "net/http"}},
	{"internal/redact", nil, []string{"os", "os/exec", "net", "net/http"}},
}

func TestArrows(t *testing.T) {
	for _, rule := range rules {
		list := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, "./"+rule.room)
		out, err := list.Output()
		if err != nil {
			t.Fatalf("cannot list the imports of %s: %v", rule.room, err)
		}
		for _, imported := range strings.Fields(string(out)) {
			ours, isOurs := strings.CutPrefix(imported, module)
			if isOurs && !slices.Contains(rule.allows, ours) {
				t.Errorf("%s imports %s; it may import of ours only %v", rule.room, ours, rule.allows)
			}
			if slices.Contains(rule.bans, imported) {
				t.Errorf("%s imports %s, which it must not", rule.room, imported)
			}
		}
	}
}

// The product requires at most so many modules itself. What the laboratory, the packages and the
// linters need is required by modules of their own. Five of them are etcd's (decision 9).
func TestRequirements(t *testing.T) {
	const limit = 43
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`(?m)^\t\S+ v\S+$`).FindAllString(string(text), -1)
	if len(direct) == 0 || len(direct) > limit {
		t.Errorf("go.mod has %d direct requirements, at most %d are allowed", len(direct), limit)
	}
}

// Only one package of the provider, and the API server of its tests, know Kubernetes' client.
func TestOnlyClusterTalksToClusters(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`,
		"./internal/rp/...").Output()
	if err != nil {
		t.Fatalf("cannot list packages: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		for _, imported := range fields[1:] {
			if strings.HasPrefix(imported, "k8s.io/") &&
				fields[0] != module+"internal/rp/cluster" &&
				fields[0] != module+"internal/rp/rptest/kubetest" {
				t.Errorf("%s imports %s; only internal/rp/cluster may", fields[0], imported)
			}
		}
	}
}

// Only one room runs programs on the machine, and only one speaks to systemd.
func TestOnlyHostTouchesTheMachine(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`,
		"./cmd/aks-flex-node", "./internal/agent/...", "./internal/aks/...", "./internal/arc/...",
		"./internal/identity/...",
		"./internal/apply/...", "./internal/generation/...", "./internal/transition/...",
		"./internal/daemon/...", "./internal/health/...", "./internal/nodeobject/...",
		"./internal/artifact/...", "./internal/config/...", "./internal/kube/...",
		"./internal/node/...", "./internal/progress/...", "./internal/release/...",
		"./internal/state/...").Output()
	if err != nil {
		t.Fatalf("cannot list packages: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		for _, imported := range fields[1:] {
			if imported == "os/exec" || strings.HasSuffix(imported, "go-systemd/v22/dbus") {
				t.Errorf("%s imports %s; only internal/host may", fields[0], imported)
			}
		}
	}
}
