package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/lab"
)

// An invalid secret is refused while the old one keeps working, and a bad configuration is rolled
// back without Azure.
func badSecret(t *testing.T) {
	t.Parallel()
	m := bareMachine(t, "badsecret-1")
	configureAs(t, m, lab.Newest, "servicePrincipal", func(c map[string]any) {
		section(c, "azure")["kubeletCredential"] = "token"
	})
	fragile(t, m)
	must(t, m, "bootstrap")
	good, err := os.ReadFile(filepath.Join(m.Root, lab.ConfigPath))
	if err != nil {
		t.Fatal(err)
	}
	works := func(t *testing.T) {
		t.Helper()
		const kubeconfig = "--kubeconfig=/var/lib/kubelet/kubeconfig"
		if out, code := inside(t, m, "kubectl", kubeconfig, "get", "node", m.Name); code != 0 {
			t.Errorf("kubelet's credential: %s", out)
		}
		if !ready(t, m) {
			t.Error("the Node is not Ready")
		}
	}

	t.Run("wrong secret", func(t *testing.T) {
		const wrong = "canary-of-a-wrong-secret"
		token, before := must(t, m, "token"), kubelet(t, m)
		edit(t, m, func(c map[string]any) {
			section(c, "azure", "servicePrincipal")["clientSecret"] = wrong
		})
		out, code := flex(t, m, "bootstrap")
		if code != 1 || !strings.Contains(out, "AADSTS7000215") {
			t.Errorf("exit code %d\n%s", code, out)
		}
		if strings.Contains(out, wrong) {
			t.Errorf("the secret is in the output:\n%s", out)
		}
		works(t)
		if now := must(t, m, "token"); now != token {
			t.Error("kubelet has lost the token that it had")
		}
		if now := kubelet(t, m); now != before {
			t.Errorf("kubelet is %s, was %s", now, before)
		}
		inside(t, m, "rm", "-f", "/run/aks-flex-node/token.json")
		works(t) // with a token obtained with the old secret
		if err := bench.Write(m, lab.ConfigPath, 0o600, good); err != nil {
			t.Fatal(err)
		}
		must(t, m, "bootstrap")
	})

	t.Run("going back without Azure", func(t *testing.T) {
		edit(t, m, func(c map[string]any) {
			section(c, "node")["maxPods"], section(c, "agent")["readyTimeout"] = 77, "20s"
		})
		cmd, err := bench.Command(t.Context(), m, "aks-flex-node", "bootstrap")
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "kubelet with the new configuration", func() bool {
			_, code := inside(t, m, "test", "-e", "/run/fragile")
			return code == 0
		})
		t.Cleanup(func() { knobs(t, m, azuresim.Knobs{}) })
		off := azuresim.Fault{Outage: true}
		faults := map[azuresim.Service]azuresim.Fault{azuresim.Entra: off, azuresim.ARM: off}
		knobs(t, m, azuresim.Knobs{Faults: faults})
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("bootstrap: %v\n%s", err, out.String())
		}
		yaml, err := os.ReadFile(filepath.Join(m.Root, "var/lib/kubelet/config.yaml"))
		if err != nil || !strings.Contains(string(yaml), `"maxPods": 110`) {
			t.Errorf("the old configuration is not back (%v):\n%s\n%s", err, yaml, out.String())
		}
		works(t)
		steady(t, m, 5*time.Second)
		knobs(t, m, azuresim.Knobs{})
		if err := bench.Write(m, lab.ConfigPath, 0o600, good); err != nil {
			t.Fatal(err)
		}
		must(t, m, "bootstrap")
	})
}
