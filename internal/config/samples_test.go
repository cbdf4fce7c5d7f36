package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// samples are the configurations that the specifying documents show, as they stand there, by
// document and line (testdata/documents): what has to be put into them so that they are one, and
// where the rest of a fragment is from.
var samples = map[string]struct{ fill, rest string }{
	"002-124": {fill: `{"kubernetes": {"version": "1.34.4"}}`},
	"002-213": {
		fill: `{"azure": {"servicePrincipal": {"clientId": "22222222-2222-2222-2222-222222222222",
			"clientSecret": "s3cret"}}, "kubernetes": {"version": "1.34.4"}}`,
		rest: "002-124",
	},
	"004-40": {fill: `{"azure": {
		"servicePrincipal": {"clientId": "22222222-2222-2222-2222-222222222222",
			"clientSecret": "s3cret"},
		"targetCluster": {"resourceId": "CLUSTER", "location": "westus"}},
		"kubernetes": {"version": "1.34.4"}, "node": {"kubelet": {"dnsServiceIP": "10.0.0.10",
			"serverURL": "https://a.example:443", "caCertData": "CA"}}}`},
	"004-404": {fill: `{"config": {"azure": {
		"subscriptionId": "11111111-1111-1111-1111-111111111111",
		"tenantId": "33333333-3333-3333-3333-333333333333",
		"servicePrincipal": {"clientTenant": "33333333-3333-3333-3333-333333333333"},
		"targetCluster": {"resourceId": "CLUSTER", "location": "westus"}},
		"node": {"kubelet": {"dnsServiceIP": "10.0.0.10",
			"serverURL": "https://a.example:443", "caCertData": "CA"}}}}`},
}

// Every configuration in the specifying documents is one, with its placeholders filled in.
func TestSamplesOfTheDocuments(t *testing.T) {
	files, err := filepath.Glob("testdata/documents/*.json")
	if err != nil || len(files) != len(samples) {
		t.Fatalf("%d samples of %d: %v", len(files), len(samples), err)
	}
	for name, s := range samples {
		t.Run(name, func(t *testing.T) {
			whole := sample(t, name)
			if s.rest != "" {
				whole = merged(sample(t, s.rest), whole)
			}
			fill := strings.NewReplacer("CLUSTER", cluster, "CA", certificate(t, true)).Replace(s.fill)
			text, err := json.Marshal(merged(whole, object(t, []byte(fill))))
			if err != nil {
				t.Fatal(err)
			}
			text = guids.ReplaceAll(text, []byte("11111111-1111-1111-1111-111111111111"))
			loaded, err := Parse(text, Host{HostName: "edge-1", Arch: "amd64"})
			c := loaded.Config
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if c.Azure.AuthMode() == "" || c.Azure.TargetCluster.Location == "" {
				t.Errorf("got %+v", c.Azure)
			}
		})
	}
}

const cluster = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/rg/providers/" +
	"Microsoft.ContainerService/managedClusters/c"

// guids are the placeholders of ids.
var guids = regexp.MustCompile(`your-(?:subscription|tenant)-id`)

// sample reads a sample without its comments, which JSON does not have, and the commas before them.
func sample(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile("testdata/documents/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)(^|\s)// .*$`).ReplaceAll(text, nil)
	text = regexp.MustCompile(`,(\s*[}\]])`).ReplaceAll(text, []byte("$1"))
	return object(t, text)
}

func object(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return o
}

// merged is one object with another over it.
func merged(under, over map[string]any) map[string]any {
	for name, value := range over {
		below, ok := under[name].(map[string]any)
		if above, both := value.(map[string]any); ok && both {
			value = merged(below, above)
		}
		under[name] = value
	}
	return under
}

// The URL templates of the documents, and the versions that stand beside them (000:1116-1173). What
// has been found out about these since then must be allowed.
func TestURLTemplatesOfTheDocuments(t *testing.T) {
	const runc = "https://github.com/opencontainers/runc/releases/download/v"
	for _, tt := range []struct{ document, kubelet, runc string }{
		{`{"kubernetes": {"version": "1.29.2",
			"urlTemplate": "https://dl.k8s.io/release/v{version}/bin/linux/amd64"},
			"containerd": {"version": "1.7.13"},
			"runc": {"version": "1.1.12", "url": "` + runc + `{version}/runc.amd64"},
			"artifacts": {"allowVulnerable": true}}`,
			"https://dl.k8s.io/release/v1.29.2/bin/linux/amd64/kubelet", runc + "1.1.12/runc.amd64"},
		{`{"kubernetes": {"version": "1.29.2",
			"urlTemplate": "https://dl.k8s.io/release/v%s/bin/linux/%s"},
			"runc": {"version": "1.1.12", "url": "` + runc + `%s/runc.%s"},
			"artifacts": {"allowVulnerable": true}}`,
			"https://dl.k8s.io/release/v1.29.2/bin/linux/amd64/kubelet", runc + "1.1.12/runc.amd64"},
	} {
		text := tokenDocument(t).with(t, tt.document).bytes(t)
		loaded, err := Parse(text, Host{HostName: "edge-1", Arch: "amd64"})
		c := loaded.Config
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Kubernetes.BinaryURL("kubelet", "amd64"); got != tt.kubelet {
			t.Errorf("kubelet is at %s", got)
		}
		if got := c.Runc.BinaryURL("amd64"); got != tt.runc {
			t.Errorf("runc is at %s", got)
		}
	}
}
