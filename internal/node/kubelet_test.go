package node

import (
	"reflect"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// With LimitedSwap the machine keeps its swap, and pods get their part; else none is left.
func TestSwap(t *testing.T) {
	for swap, keeps := range map[string]bool{"": false, "off": false, "LimitedSwap": true} {
		c, f, _ := example{config: func(c *config.Config) { c.Node.Kubelet.Swap = swap }}.inputs()
		f.SwapUnits = []string{"swap.img.swap"}
		text, off := "", 0
		for _, item := range Render(c, f) {
			switch r := item.Resource.(type) {
			case state.Swap:
				off++
			case state.Unit:
				if r.Name == "swap.img.swap" && r.Enabled == state.Masked {
					off++
				}
			case state.File:
				if r.Path == "/var/lib/kubelet/config.yaml" {
					text = r.Content
				}
			}
		}
		fails := strings.Contains(text, `"failSwapOn": true`)
		limited := strings.Contains(text, `"swapBehavior": "LimitedSwap"`)
		if off != map[bool]int{false: 2}[keeps] || fails == keeps || limited != keeps {
			t.Errorf("%q: %d resources turn it off, kubelet fails: %v, limits: %v", swap, off, fails,
				limited)
		}
	}
}

// Kubelets of all versions behave as those before 1.35: images that are there are for every pod,
// for which older ones have no setting, and events have the same rate.
func TestKubeletsBehaveAlike(t *testing.T) {
	for version, has := range map[string]bool{
		"1.29.0": false, "1.34.9": false, "1.35.0": true, "1.36.3": true, "1.37.1": true, "": false,
	} {
		c := base()
		c.Kubernetes.Version = version
		p := &part{config: c}
		text := p.kubeletConfiguration()
		const policy = `"imagePullCredentialsVerificationPolicy": "NeverVerify"`
		if got := strings.Contains(text, policy); got != has {
			t.Errorf("%s has the setting: %v", version, got)
		}
		if !strings.Contains(text, `"eventRecordQPS": 5,`) {
			t.Errorf("%s: another rate of events", version)
		}
	}
}

// Every setting of kubelet changes what a node is rendered as: none is accepted and does nothing.
func TestKubeletSettingsAreRendered(t *testing.T) {
	values := map[string]any{
		"KubeReserved": map[string]string{"cpu": "7"},
		"EvictionHard": map[string]string{"memory.available": "7Mi"},
		"DNSServiceIP": "10.0.0.77", "NodeIP": "192.0.2.77", "ContainerLogMaxSize": "7Mi",
		"Swap": "LimitedSwap", "ShutdownGracePeriod": "77s", "CriticalGracePeriod": "7s",
	}
	rendered := func(change func(*config.Kubelet)) string {
		c, f, b := example{config: func(c *config.Config) {
			c.Node.Kubelet.ShutdownGracePeriod = "30s" // without it there is no critical one
			change(&c.Node.Kubelet)
		}}.inputs()
		return text(Bind(Render(c, f), b))
	}
	before := rendered(func(*config.Kubelet) {})
	for field := range reflect.TypeFor[config.Kubelet]().Fields() {
		if field.Name == "ServerURL" || field.Name == "CACertData" {
			continue // the join makes Bindings of them
		}
		after := rendered(func(k *config.Kubelet) {
			v := reflect.ValueOf(k).Elem().FieldByIndex(field.Index)
			value, known := values[field.Name]
			switch {
			case known:
				v.Set(reflect.ValueOf(value))
			case field.Type == reflect.TypeFor[int]():
				v.SetInt(v.Int() + 1)
			case field.Type == reflect.TypeFor[bool]():
				v.SetBool(!v.Bool())
			case field.Type == reflect.TypeFor[*int]():
				v.Set(reflect.ValueOf(new(77)))
			case field.Type == reflect.TypeFor[*bool]():
				v.Set(reflect.ValueOf(new(v.IsNil() || !v.Elem().Bool())))
			default:
				t.Errorf("%s: give it a value that is no default in this test", field.Name)
			}
		})
		if after == before {
			t.Errorf("%s changes nothing: it belongs in kubeletConfiguration or optional (kubelet.go)",
				field.Name)
		}
	}
}
