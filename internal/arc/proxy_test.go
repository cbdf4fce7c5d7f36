package arc

import (
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
)

func (w *world) enrol() error {
	w.t.Helper()
	a, ctx := w.arc(0)
	_, _, err := a.Enrol(ctx, w.record)
	return err
}

func (w *world) agentProxy() string {
	w.t.Helper()
	value, err := w.agent.Setting(azuresim.ProxyURL)
	if err != nil {
		w.t.Fatal(err)
	}
	return value
}

// The Arc agent reaches Azure through the configured proxy, follows it when it changes, and has
// none when none is configured any more.
func TestProxyReachesTheAgent(t *testing.T) {
	w := newWorld(t)
	before := tunnel.Opened()
	if err := w.enrol(); err != nil {
		t.Fatal(err)
	}
	if w.agentProxy() != tunnel.URL || w.record.Proxy != tunnel.URL || tunnel.Opened() == before {
		t.Errorf("the agent's proxy is %q, recorded %q; %d connections through it", w.agentProxy(),
			w.record.Proxy, tunnel.Opened()-before)
	}
	w.proxy = config.Secret(tunnel.URL + "/")
	if err := w.enrol(); err != nil || w.agentProxy() != tunnel.URL+"/" {
		t.Errorf("another proxy: %q, %v", w.agentProxy(), err)
	}
	w.proxy = ""
	if err := w.enrol(); err != nil || w.agentProxy() != "" || w.record.Proxy != "" {
		t.Errorf("no proxy any more: %q, recorded %q, %v", w.agentProxy(), w.record.Proxy, err)
	}
}

// A proxy that others have given the agent is neither changed nor taken away.
func TestForeignProxyRemains(t *testing.T) {
	for name, configured := range map[string]config.Secret{
		"another": "http://proxy.example:3128", "the same": config.Secret(tunnel.URL), "none": ""} {
		w := newWorld(t)
		w.proxy = configured
		if err := w.agent.Set(azuresim.ProxyURL, tunnel.URL); err != nil {
			t.Fatal(err)
		}
		if err := w.enrol(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if (len(w.warned) > 0) != (name == "another") {
			t.Errorf("%s: warned %q", name, w.warned)
		}
		a, ctx := w.arc(0)
		if err := a.Leave(ctx, w.record); err != nil || w.agentProxy() != tunnel.URL {
			t.Errorf("%s: after leaving: %q, %v", name, w.agentProxy(), err)
		}
	}
}

// A proxy with a password is not set, since it would be an argument: the owner is warned.
func TestProxyWithPasswordIsNoArgument(t *testing.T) {
	w := newWorld(t)
	w.proxy = "http://user:canary-password@proxy.example:3128"
	if err := w.enrol(); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(append(w.argv, w.warned...), "\n")
	if strings.Contains(said, "canary-password") || w.agentProxy() != "" || len(w.warned) != 1 ||
		!strings.Contains(w.warned[0], "azcmagent config set proxy.url") {
		t.Errorf("proxy %q, warned and run:\n%s", w.agentProxy(), said)
	}
}
