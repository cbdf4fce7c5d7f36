package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDefaults(t *testing.T) {
	const principal = `"servicePrincipal": {"clientId": "` + testTenant + `", ` +
		`"clientSecretFile": "/etc/secret"}, "cloud": "AzureChinaCloud"`
	for name, d := range map[string]document{
		"token": tokenDocument(t),
		"arc":   azureDocument(t, `"arc": {}`),
		"sp":    azureDocument(t, principal),
	} {
		c, _ := parseOK(t, d)
		c.Node.Kubelet.CACertData = ""
		text, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/defaults-"+name+".json", text)
	}
}

// TestAccepted shows what is allowed and might not be thought to be: the whole is read with the
// wanted value.
func TestAccepted(t *testing.T) {
	for _, test := range []struct {
		patch string
		got   func(Config) any
		want  any
	}{
		{`{"kubernetes": {"version": "v1.33.8"}}`,
			func(c Config) any { return c.Kubernetes.Version }, "1.33.8"},
		{`{"containerd": {"version": "1.7.34"}, "kubernetes": {"version": "1.35.1"}}`,
			func(c Config) any { return c.Containerd.Version }, "1.7.34"},
		{`{"node": {"labels": {"example.com/a.b": "", "kubernetes.azure.com/managed": "false"}}}`,
			func(c Config) any { return c.Node.Labels },
			map[string]string{"example.com/a.b": "", "kubernetes.azure.com/managed": "false"}},
		{`{"node": {"taints": ["a:NoSchedule", "a:NoExecute", "b.c/d=:NoExecute"]}}`,
			func(c Config) any { return len(c.Node.Taints) }, 3},
		{`{"node": {"kubelet": {"verbosity": 0, "imageGCLowThreshold": 0}}}`,
			func(c Config) any { return c.Node.Kubelet.Verbosity }, 0},
		{`{"node": {"kubelet": {"nodeIP": "10.1.1.1,fd00::1", "dnsServiceIP": "169.254.20.10"}}}`,
			func(c Config) any { return c.Node.Kubelet.NodeIP }, "10.1.1.1,fd00::1"},
		{`{"node": {"kubelet": {"evictionHard": {"memory.available": "5%", "pid.available": ` +
			`"0%"}}}}`, func(c Config) any { return len(c.Node.Kubelet.EvictionHard) }, 2},
		{`{"node": {"kubelet": {"serverURL": "https://[fd00::1]:6443/"}}}`,
			func(c Config) any { return c.Node.Kubelet.ServerURL }, "https://[fd00::1]:6443"},
		{`{"agent": {"logLevel": "warn", "nodeName": ""}}`,
			func(c Config) any { return c.Agent.LogLevel + c.Agent.NodeName }, "warningedge-01"},
		{`{"cni": {"podCIDR": "fd00:1:2:3::/64"}}`, func(c Config) any { return c.CNI.PodCIDR },
			"fd00:1:2:3::/64"},
		{`{"azure": {"targetCluster": {"resourceId": "` + strings.ToLower(testCluster) + `"}}}`,
			func(c Config) any { return c.Azure.SubscriptionID },
			"11111111-2222-3333-4444-555555555555"},
		{`{"artifacts": {"overrides": {"runc": {"sha256": "` + strings.Repeat("AB", 32) + `"}}}}`,
			func(c Config) any { return c.Artifacts.Overrides["runc"].SHA256 }, strings.Repeat("ab", 32)},
		{`{"kubernetes": {"version": "1.34.4", "urlTemplate": "https://a.example/v%s/bin/linux/%s"}}`,
			func(c Config) any { return c.Kubernetes.BinaryURL("kubelet", "arm64") },
			"https://a.example/v1.34.4/bin/linux/arm64/kubelet"},
		{`{"kubernetes": {"version": "1.34.4", "urlTemplate": "https://a.example/v{version}/{arch}/"}}`,
			func(c Config) any { return c.Kubernetes.BinaryURL("kubectl", "amd64") },
			"https://a.example/v1.34.4/amd64/kubectl"},
		{`{"runc": {"version": "v1.2.9", "url": "https://a.example/v{version}/runc.amd64"}}`,
			func(c Config) any { return c.Runc.BinaryURL("amd64") }, "https://a.example/v1.2.9/runc.amd64"},
		{`{"runc": {"version": "1.2.9", "url": "https://a.example/v%s/runc.%s"}}`,
			func(c Config) any { return c.Runc.BinaryURL("arm64") }, "https://a.example/v1.2.9/runc.arm64"},
		{`{"runc": {"url": "https://a.example/runc"}}`,
			func(c Config) any { return c.Runc.BinaryURL("arm64") }, "https://a.example/runc"},
		{`{"azure": {"cloud": "AzureUSGovernmentCloud"}}`,
			func(c Config) any { return c.Azure.AuthorityHost },
			"https://login.microsoftonline.us"},
		{`{"proxy": {"noProxy": ["*.a.example", "host:8080", "10.0.0.0/8"]}}`,
			func(c Config) any { return len(c.Proxy.NoProxy) }, 3},
		{`{"agent": {"readyTimeout": "90s"}}`,
			func(c Config) any { return c.ReadyTimeout().Seconds() }, 90.0},
	} {
		c, _ := parseOK(t, tokenDocument(t).with(t, test.patch))
		if diff := cmp.Diff(test.want, test.got(c)); diff != "" {
			t.Errorf("%s: %s", test.patch, diff)
		}
	}
}

func TestBundle(t *testing.T) {
	bare, _ := parseOK(t, tokenDocument(t))
	d := tokenDocument(t)
	kubelet := d["node"].(map[string]any)["kubelet"].(map[string]any)
	kubelet["caCertData"] = bare.Node.Kubelet.CACertData
	wrapped, _ := parseOK(t, document{"config": d})
	if diff := cmp.Diff(bare, wrapped); diff != "" {
		t.Error(diff)
	}
	beside := parseBad(t, document{"config": d, "npd": nil}.bytes(t))
	if !slices.ContainsFunc(beside, func(p Problem) bool { return p.Path == "config" }) {
		t.Errorf("a config beside other settings gives %v", beside)
	}
}

func TestAliases(t *testing.T) {
	d := tokenDocument(t).with(t, `{
		"components": {
			"kubernetes": "1.33.8", "containerd": "2.1.9", "runc": "1.3.3",
			"sandboxImage": "a.example/pause:1"
		},
		"networking": {"cniVersion": "1.8.0", "dnsServiceIP": "10.96.0.10"},
		"node": {"kubelet": {"serverURL": null, "clusterFQDN": "edge.example"}},
		"agent": {"enableDriftDetectionAndRemediation": true}
	}`)
	c, _ := parseOK(t, d)
	got := []string{
		c.Kubernetes.Version, c.Containerd.Version, c.Runc.Version, c.Containerd.PauseImage,
		c.CNI.Version, c.Node.Kubelet.DNSServiceIP, c.Node.Kubelet.ServerURL, c.Agent.DriftPolicy,
	}
	want := []string{
		"1.33.8", "2.1.9", "1.3.3", "a.example/pause:1",
		"1.8.0", "10.96.0.10", "https://edge.example", DriftRepair,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	parseOK(t, d.with(t, `{
		"kubernetes": {"version": "1.33.8"}, "agent": {"driftPolicy": "repair"}
	}`))

	c, _ = parseOK(t, tokenDocument(t).with(t, `{
		"agent": {"enableDriftDetectionAndRemediation": false}
	}`))
	if c.Agent.DriftPolicy != DriftOff {
		t.Errorf("drift detection switched off gives %q", c.Agent.DriftPolicy)
	}
	c, _ = parseOK(t, azureDocument(t, `"servicePrincipal": {
		"clientId": "`+testTenant+`", "clientSecret": "a",
		"clientTenant": "11111111-2222-3333-4444-555555555555"
	}`))
	if c.Azure.ServicePrincipal.TenantID != "11111111-2222-3333-4444-555555555555" {
		t.Errorf("clientTenant gives %q", c.Azure.ServicePrincipal.TenantID)
	}
}

func TestAuthMode(t *testing.T) {
	const sp = `"servicePrincipal": {` +
		`"clientId": "` + testTenant + `", "clientSecret": "` + testSecret + `"}`
	for members, want := range map[string]AuthMode{
		sp:                                   AuthServicePrincipal,
		sp + `, "arc": {}`:                   AuthArc,
		sp + `, "arc": {"enabled": false}`:   AuthServicePrincipal,
		`"arc": {"enabled": true}`:           AuthArc,
		`"managedIdentity": {}`:              AuthManagedIdentity,
		`"managedIdentity": {}, "arc": null`: AuthManagedIdentity,
	} {
		c, _ := parseOK(t, azureDocument(t, members))
		if got := c.Azure.AuthMode(); got != want {
			t.Errorf("%s gives %q, want %q", members, got, want)
		}
	}
	c, _ := parseOK(t, tokenDocument(t))
	if got := c.WithoutSecrets().Azure.AuthMode(); got != AuthBootstrapToken {
		t.Errorf("without its secrets the mode is %q", got)
	}
	if got := (Azure{}).AuthMode(); got != "" {
		t.Errorf("nothing gives %q", got)
	}
}

func TestWarnings(t *testing.T) {
	_, got := parseOK(t, tokenDocument(t).with(t, `{
		"azure": {"targetAgentPoolName": "edge"},
		"continuousMonitoring": true,
		"containerd": {"metricsAddress": "0.0.0.0:10257"},
		"cni": {"podCIDR": "10.244.7.0/26"},
		"artifacts": {"directory": "/srv/artifacts", "mirror": "https://mirror.example"}
	}`))
	want := []Warning{
		{"containerd.metricsAddress", "",
			"containerd's metrics have no authentication: 0.0.0.0:10257 shows them to the network"},
		{"cni.podCIDR", "", "10.244.7.0/26 has addresses for 61 pods, and node.maxPods is 110"},
		{"artifacts.directory", "", "mirrors have no effect: with a directory nothing is downloaded"},
		{"azure.targetAgentPoolName", "",
			"has no effect yet: this release of the agent does not support it"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	_, got = parseOK(t, azureDocument(t,
		`"arc": {"autoRoleAssignment": true}, "kubeletCredential": "certificate"`))
	if len(got) != 1 || got[0].Path != "azure.arc.autoRoleAssignment" {
		t.Errorf("of roles that are not assigned: %+v", got)
	}
}

// secretDocument holds every kind of secret; each has the word canary in it.
func secretDocument(t testing.TB) (token, principal document) {
	proxies := `{"proxy": {"http": "` + testProxy + `", "https": "` + testProxy + `"}}`
	principal = azureDocument(t, `"servicePrincipal": {
		"clientId": "`+testTenant+`", "clientSecret": "`+testSecret+`"
	}`)
	return tokenDocument(t).with(t, proxies), principal.with(t, proxies)
}

func TestSecretsDoNotShow(t *testing.T) {
	token, principal := secretDocument(t)
	for _, d := range []document{token, principal} {
		c, _ := parseOK(t, d)
		for name, text := range renderings(t, c) {
			for _, secret := range c.Secrets() {
				hex := fmt.Sprintf("%x", secret)
				if strings.Contains(text, secret) || strings.Contains(text, hex) {
					t.Errorf("%q shows in %s", secret, name)
				}
			}
			if !strings.Contains(text, redacted) {
				t.Errorf("%s redacts nothing", name)
			}
		}
	}
}

// renderings are the ways in which a configuration could get into a log.
func renderings(t *testing.T, c Config) map[string]string {
	t.Helper()
	texts := map[string]string{}
	sections := []any{c.Azure, c.Proxy, c.Azure.BootstrapToken, c.Azure.ServicePrincipal}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		texts["Config "+verb] = fmt.Sprintf(verb, c)
		texts["*Config "+verb] = fmt.Sprintf(verb, &c)
		texts["sections "+verb] = fmt.Sprintf(verb, sections)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("", "config", c, "secret", c.Proxy.HTTP)
	slog.New(slog.NewTextHandler(&log, nil)).Info("", "config", c, "secret", c.Proxy.HTTP)
	texts["log"] = log.String()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	texts["JSON"] = string(text)
	return texts
}

func TestSecretsDoNotShowInProblems(t *testing.T) {
	for _, d := range []document{
		tokenDocument(t).with(t, `{"azure": {"bootstrapToken": {"token": "canary"}}}`),
		tokenDocument(t).with(t, `{"azure": {"bootstrapToken": "canary"}}`),
		tokenDocument(t).with(t, `{"azure": {"bootstrapTokn": {"token": "canary"}}}`),
		tokenDocument(t).with(t, `{"agent": {"nodeName": "`+testToken+`_"}}`),
		tokenDocument(t).with(t, `{"node": {"labels": {"x/`+testToken+`/": "a"}}}`),
		tokenDocument(t).with(t, `{"artifacts": {"mirror": "https://user:canary@mirror.example/"}}`),
		tokenDocument(t).with(t, `{"runc": {"url": "https://blob.example/runc?sig=canary"}}`),
		tokenDocument(t).with(t, `{"proxy": {"http": "user:canary@proxy.example"}}`),
		azureDocument(t, `"servicePrincipal": {
			"clientId": "`+testSecret+`", "clientSecret": "`+testSecret+`"
		}`),
		azureDocument(t, `"servicePrincipal": {"clientSecret": ["canary"]}`),
	} {
		if text := parseBad(t, d.bytes(t)).Error(); strings.Contains(text, "canary") {
			t.Errorf("a secret shows in: %s", text)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	token, principal := secretDocument(t)
	for _, d := range []document{
		token, principal,
		azureDocument(t, `"arc": {"tags": {"a": "<&>"}}`), azureDocument(t, `"managedIdentity": {}`),
	} {
		roundTrip(t, d.bytes(t))
	}
}

// roundTrip checks that a valid configuration comes back from Reveal as it was.
func roundTrip(t *testing.T, data []byte) {
	t.Helper()
	read, err := Parse(data, testHost())
	c := read.Config
	if err != nil {
		t.Fatal(err)
	}
	clear := c.Reveal()
	// Everything that the host was asked for is in the text.
	read, err = Parse(clear, Host{HostName: "other", Arch: testHost().Arch})
	again := read.Config
	if err != nil {
		t.Fatalf("%v in %s", err, clear)
	}
	if diff := cmp.Diff(c, again); diff != "" {
		t.Error(diff)
	}
	var plain Config
	if err := json.Unmarshal(clear, &plain); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, plain); diff != "" {
		t.Errorf("plain decoding: %s", diff)
	}
}

func TestBypass(t *testing.T) {
	c, _ := parseOK(t, tokenDocument(t).with(t, `{
		"cni": {"podCIDR": "10.244.7.0/24"},
		"node": {"kubelet": {"nodeIP": "192.168.7.20,fd00::7", "dnsServiceIP": "10.96.0.10"}},
		"proxy": {"https": "`+testProxy+`", "noProxy": [".plant.example", "localhost"]}
	}`))
	want := []string{
		"localhost", "127.0.0.1", "::1", "169.254.169.254", "168.63.129.16", ".svc",
		".cluster.local", "10.96.0.0/16", "10.244.7.0/24", "192.168.7.20", "fd00::7", ".plant.example",
	}
	if diff := cmp.Diff(want, c.Bypass()); diff != "" {
		t.Error(diff)
	}
	for target, want := range map[string]string{
		"https://edge.example:443/":             testProxy,
		"http://edge.example/":                  "",
		"https://169.254.169.254/metadata":      "",
		"https://a.b.svc/":                      "",
		"https://10.96.3.4/":                    "",
		"https://host.plant.example/":           "",
		"https://[::1]:10250/":                  "",
		"https://127.0.0.1:40342/":              "",
		"https://kubernetes.default.svc.other/": testProxy,
	} {
		r, err := http.NewRequest(http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.ProxyFunc()(r)
		if err != nil || (got == nil) != (want == "") || (got != nil && got.String() != want) {
			t.Errorf("%s goes by way of %v (%v), want %q", target, got, err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	token, _ := secretDocument(t)
	open := azureDocument(t, `"managedIdentity": {}`)
	mistake := token.with(t, `{"node": {"maxPods": 0}}`)
	for _, test := range []struct {
		name    string
		content document
		mode    os.FileMode
		// want holds what the error must contain; none is success.
		want []string
	}{
		{"a secret of the owner alone", token, 0o600, nil},
		{"a secret that the group can read", token, 0o640, []string{"mode 0640); run `chmod 600 "}},
		{"a secret that all can read", token, 0o604, []string{"mode 0604); run `chmod 600 "}},
		{"no secret", open, 0o644, nil},
		{"no secret, and the group can write", open, 0o664, []string{"its group (mode 0664)"}},
		{"no secret, and all can write", open, 0o646, []string{"every user (mode 0646)"}},
		{"a secret that all can read, and a mistake", mistake, 0o644,
			[]string{"chmod 600 ", "node.maxPods: 0"}},
		{"a file of the group, and a mistake", mistake, 0o660,
			[]string{"cannot trust ", "node.maxPods: 0"}},
	} {
		file := safeDir(t) + "/config.json"
		if err := os.WriteFile(file, test.content.bytes(t), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, test.mode); err != nil {
			t.Fatal(err)
		}
		_, err := Load(file, nil)
		if (err == nil) != (test.want == nil) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", test.name, err, want)
			}
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	large := t.TempDir() + "/large.json"
	if err := os.WriteFile(large, bytes.Repeat([]byte(" "), maxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		large:                    "larger than 1 MiB",
		t.TempDir():              "not a regular file",
		t.TempDir() + "/missing": "no such file",
	} {
		if _, err := Load(file, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
}

// A file that is replaced while it is read gives a configuration and a document of one moment: what
// the agent joined with is never taken for what has come since.
func TestLoadIsOneRead(t *testing.T) {
	dir := safeDir(t)
	file := dir + "/config.json"
	write := func(pods int) error {
		content := tokenDocument(t).with(t, fmt.Sprintf(`{"node": {"maxPods": %d}}`, pods)).bytes(t)
		err := os.WriteFile(file+".new", content, 0o600)
		return errors.Join(err, os.Rename(file+".new", file))
	}
	if err := write(100); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for n := 0; err == nil; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
				err = write(100 + n%2)
			}
		}
		done <- err
	}()
	for range 500 {
		got, err := Load(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(`"maxPods":%d`, got.Config.Node.MaxPods); !strings.Contains(
			string(got.Document), want) {
			t.Fatalf("the configuration has %s, its document %s", want, got.Document)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func BenchmarkParse(b *testing.B) {
	data := tokenDocument(b).bytes(b)
	for b.Loop() {
		if _, err := Parse(data, testHost()); err != nil {
			b.Fatal(err)
		}
	}
}

func TestProblemsAsJSON(t *testing.T) {
	problems := Problems{{Path: "node.maxPods", Value: "0", Message: "must be more"}}
	joined := errors.Join(errors.New("cannot trust c.json"),
		fmt.Errorf("cannot use c.json:\n%w", problems))
	for want, err := range map[string]error{
		`[]`:                                  nil,
		`[{"path":"","message":"no reason"}]`: errors.New("no reason"),
		`[{"path":"","message":"cannot trust c.json"},` +
			`{"path":"node.maxPods","value":"0","message":"must be more"}]`: joined,
	} {
		got, err := json.Marshal(AsProblems(err))
		if err != nil || string(got) != want {
			t.Errorf("got %s (%v), want %s", got, err, want)
		}
	}
}
