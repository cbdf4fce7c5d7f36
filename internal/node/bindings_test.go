package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

func TestOnly(t *testing.T) {
	var d state.Desired
	for _, only := range []state.Only{
		"", Joining, Joined, OwnNetwork, Rebound, "of-a-newer-release",
	} {
		d = append(d, state.Item{Resource: state.Absent{Path: "/" + string(only)}, Only: only})
	}
	tests := []struct {
		bindings Bindings
		want     string
	}{
		{Bindings{}, "[ joining own-network of-a-newer-release]"},
		{Bindings{Joined: true}, "[ joined own-network of-a-newer-release]"},
		{Bindings{Joined: true, Rebound: true}, "[ joined own-network rebound of-a-newer-release]"},
		{Bindings{ForeignCNI: []string{"05-cilium.conflist"}}, "[ joining of-a-newer-release]"},
	}
	for _, tt := range tests {
		var got []state.Only
		for _, item := range Bind(d, tt.bindings) {
			got = append(got, item.Only)
			if item.Spared != (item.Only == "of-a-newer-release") {
				t.Errorf("%q: spared is %v", item.Only, item.Spared)
			}
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%+v has %v, want %s", tt.bindings, got, tt.want)
		}
	}
}

// A binding that is not known yet leaves its placeholder, and what holds one waits.
func TestUnknownBindingsWait(t *testing.T) {
	for _, e := range examples() {
		c, f, b := e.inputs()
		now, _, _ := Bind(Render(c, f), b).Cut(func(need state.Need) bool { return cut(b, need) })
		for _, item := range now {
			if file, ok := item.Resource.(state.File); ok && strings.Contains(file.Content, "⟦") {
				t.Errorf("%s: %s holds a placeholder and waits for nothing", e.name, file.Path)
			}
		}
	}
}

// cut tells what is known of a machine with bindings b.
func cut(b Bindings, need state.Need) bool {
	switch need {
	case Network:
		return len(b.PodCIDRs) > 0 || len(b.ForeignCNI) > 0
	default:
		return b.Joined
	}
}

// Bind computes digests from what it has filled in, and leaves what it was given as it was.
func TestBindComputesDigests(t *testing.T) {
	c, f, b := examples()[1].inputs()
	rendered := Render(c, f)
	before := text(rendered)
	for _, d := range []state.Desired{rendered, Bind(rendered, b)} {
		for _, item := range d {
			file, ok := item.Resource.(state.File)
			if ok && file.SHA256 != state.Digest(file.Content) {
				t.Errorf("%s has the digest of another content", file.Path)
			}
		}
	}
	if text(rendered) != before {
		t.Error("binding has changed the rendered node")
	}
}

// A change of a binding restarts what has read it, and nothing else.
func TestChangedBindings(t *testing.T) {
	kubeconfig, unit := "path:/var/lib/kubelet/kubeconfig", "path:"+unitDir+"/"+NPDUnit
	token := "path:/var/lib/kubelet/token.sh"
	tests := []struct {
		name   string
		change func(*Bindings)
		want   []string
	}{
		{"CA", func(b *Bindings) { b.CA = "-----NEW-----\n" }, []string{
			"path:/etc/kubernetes/certs/ca.crt [kubelet.service]",
			kubeconfig + " [kubelet.service node-problem-detector.service]",
		}},
		{"server", func(b *Bindings) { b.Server = "https://10.9.8.7" }, []string{
			kubeconfig + " [kubelet.service node-problem-detector.service]",
			unit + " [daemon-reload node-problem-detector.service]",
		}},
		{"program", func(b *Bindings) { b.Program = "/opt/bin/aks-flex-node" }, []string{
			token + " []",
			kubeconfig + " [kubelet.service node-problem-detector.service]",
		}},
	}
	c, f, b := examples()[1].inputs()
	joined(&b)
	rendered := Render(c, f)
	for _, tt := range tests {
		changed := b
		tt.change(&changed)
		old, got := Bind(rendered, b), []string{}
		for i, item := range Bind(rendered, changed) {
			if !state.Equal(item.Resource, old[i].Resource) {
				got = append(got, fmt.Sprintf("%s %v", item.Resource.Key(), item.Owes))
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("a new %s changes (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Kubelet's own kubeconfig becomes ours only when what kubelet wrote leads to a dead address or CA.
func TestKubeconfigIsOursOnceRebound(t *testing.T) {
	c, f, b := base(), facts(), bindings()
	joined(&b)
	key := state.PathKey(KubeconfigPath("/var/lib/kubelet"))
	for _, item := range Bind(Render(c, f), b) {
		if item.Resource.Key() == key {
			t.Fatalf("%s is declared while kubelet writes it", key)
		}
	}
	b.Rebound = true
	item := find(t, Bind(Render(c, f), b), key)
	file := item.Resource.(state.File)
	for _, want := range []string{
		"server: https://cluster.example:443\n",
		"certificate-authority-data: LS0tLS1DQS0tLS0tCg==\n",
		"client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n",
		"client-key: " + ClientCertificatePath("/var/lib/kubelet") + "\n",
	} {
		if !strings.Contains(file.Content, want) {
			t.Errorf("the kubeconfig lacks %q:\n%s", want, file.Content)
		}
	}
	if item.Step != state.Credentials || file.Mode != 0o600 || item.Owes[0] != KubeletUnit {
		t.Errorf("the kubeconfig is of step %s, mode %04o, and owes %v",
			item.Step, file.Mode, item.Owes)
	}
}

// Bindings are written down, without the token.
func TestBindingsJSON(t *testing.T) {
	b := bindings()
	joined(&b)
	data, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var back Bindings
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	b.BootstrapToken = ""
	if diff := cmp.Diff(b, back); diff != "" || strings.Contains(string(data), "token\"") {
		t.Errorf("bindings differ after a round trip of %s (-want +got):\n%s", data, diff)
	}
}

// No configured value can be a placeholder: a setting that takes any text is in no file, and every
// other one refuses the brackets.
func TestNoValueForgesAPlaceholder(t *testing.T) {
	const forged = "⟦ca⟧"
	var settings, refused int
	for _, name := range []string{"arc", "token"} { // between them they hold every setting
		_, c := bundle(t, "../../api/flexnode/v20260501preview/testdata/"+name+".json")
		c.Proxy = config.Proxy{
			HTTP:    "http://proxy.example",
			HTTPS:   "http://proxy.example",
			NoProxy: []string{"a.example"},
		}
		c.CNI.PodCIDR = "10.200.3.0/24"
		c.Node.Kubelet.NodeIP = "192.0.2.7"
		c.Node.Kubelet.KubeReserved = map[string]string{"cpu": "100m"}
		c.Node.Kubelet.EvictionHard = map[string]string{"memory.available": "100Mi"}
		if c.Azure.Arc != nil {
			c.Azure.Arc.Tags = map[string]string{"site": "north"} // may hold anything
		}
		plain := c.Reveal()
		host := config.Host{HostName: "host", Arch: "amd64"}
		if _, err := config.Parse(plain, host); err != nil {
			t.Fatal(err)
		}
		for _, variant := range forge(t, plain, forged) {
			settings++
			loaded, err := config.Parse(variant, host)
			c := loaded.Config
			if err != nil {
				refused++
				continue
			}
			want := strings.Count(text(Render(base(), facts())), forged)
			if got := strings.Count(text(Render(c, facts())), forged); got != want {
				t.Errorf("a value forges a placeholder in %s", variant)
			}
		}
	}
	if settings < 100 || refused < settings*9/10 || refused == settings {
		t.Errorf("tried %d settings, %d of them refused", settings, refused)
	}
}

// forge returns a configuration once for each text in it, which is lengthened, and once for each
// URL, which gets a user.
func forge(t *testing.T, data []byte, forged string) [][]byte {
	t.Helper()
	var variants [][]byte
	for i := 0; ; i++ {
		var doc any
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, change := range []func(string) string{
			func(s string) string { return s + forged },
			func(s string) string { return strings.Replace(s, "://", "://u:"+forged+"@", 1) },
		} {
			doc = replaceText(doc, &n, i, change)
		}
		variant, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if i >= n {
			return variants
		}
		var original any
		if err := json.Unmarshal(data, &original); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(doc, original) {
			variants = append(variants, variant)
		}
	}
}

// replaceText changes the text of number at, counted by n: values, and names in objects.
func replaceText(v any, n *int, at int, change func(string) string) any {
	switch v := v.(type) {
	case string:
		*n++
		if *n-1 == at {
			return change(v)
		}
	case []any:
		for i := range v {
			v[i] = replaceText(v[i], n, at, change)
		}
	case map[string]any:
		next := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			value := replaceText(v[name], n, at, change)
			next[replaceText(name, n, at, change).(string)] = value
		}
		return next
	}
	return v
}
