package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// configured is a configuration with the defaults, changed.
func configured(change ...func(*config.Config)) config.Config {
	c := config.Defaults()
	c.Kubernetes.Version, c.Containerd.Version, c.Runc.Version = "1.34.4", "2.2.1", "1.3.4"
	c.Node.Kubelet.ServerURL, c.Node.Kubelet.CACertData = "https://api.example", "Y2E="
	for _, f := range change {
		f(&c)
	}
	return c
}

func override(url, digest string) func(*config.Config) {
	return func(c *config.Config) {
		c.Artifacts.Overrides = map[string]config.Override{"kubelet": {URL: url, SHA256: digest}}
	}
}

// Each row is what a provider wants of a machine with a policy, and what is refused of it.
func TestCheck(t *testing.T) {
	unchanged := func(*config.Config) {}
	path := func(c *config.Config) { c.Paths.CNI.BinDir = "/srv/cni" }
	logs := func(c *config.Config) { c.Agent.LogDir = "/srv/log" }
	textfile := func(c *config.Config) { c.Agent.Metrics.Textfile = "/srv/x.prom" }
	directory := func(c *config.Config) { c.Artifacts.Directory = "/srv/artifacts" }
	trusting := func(c *config.Config) { c.Artifacts.TrustMirrorChecksums = true }
	kubernetes := func(c *config.Config) { c.Kubernetes.URLTemplate = "https://a.example/%s/x" }
	user := func(c *config.Config) { c.Azure.CLIUser = "ada" }
	hostless := func(c *config.Config) { c.Runc.URL = "https://{version}.example/runc" }
	arcURL := func(c *config.Config) {
		c.Azure.Arc = &config.Arc{Package: &config.ArcPackage{URL: "https://x.example/apt"}}
	}
	runc := func(c *config.Config) { c.Runc.URL = "https://a.example/{version}/runc" }
	server := func(c *config.Config) { c.Node.Kubelet.ServerURL = "https://other.example" }
	ca := func(c *config.Config) { c.Node.Kubelet.CACertData = "b3RoZXI=" }
	manager := func(c *config.Config) { c.Azure.ResourceManagerEndpoint = "https://arm.example" }
	arc := func(c *config.Config) { c.Azure.Arc = &config.Arc{Enabled: new(true)} }
	proxy := func(c *config.Config) { c.Proxy.HTTPS = "http://user:secret@proxy.example:3128" }
	direct := func(c *config.Config) { c.Proxy.NoProxy = []string{"*"} }
	audience := func(of string) func(*config.Config) {
		return func(c *config.Config) { c.Agent.Monitoring.Audience = of }
	}
	const arm = "https://management.azure.com"
	mirrors := func(c *config.Config) {
		c.Artifacts.Mirror = "https://m.example:8443/x"
		c.Artifacts.Mirrors = []string{"https://M2.example", "https://m.example"}
	}
	pause := func(c *config.Config) { c.Containerd.PauseImage = "r.example:5000/pause:3.10" }
	docker := func(c *config.Config) { c.Containerd.PauseImage = "library/pause:3.10" }
	older := func(c *config.Config) {
		c.Kubernetes.Version, c.Containerd.Version, c.Runc.Version = "1.33.9", "1.7.28", "1.3.1"
	}
	open := func(c *config.Config) { c.Kubernetes.Version = "" }
	const floors = `{"minimumVersions": {"kubernetes": "1.34.0", "containerd": "2.0.0",
		"runc": "1.3.3"}}`
	for _, tt := range []struct {
		name, policy    string
		wanted, applied func(*config.Config)
		refused         []string
	}{
		{"the defaults", "", unchanged, nil, nil},
		{"an override", "", override("https://x.example/k", "aa"), nil,
			[]string{"artifacts.overrides.kubelet.sha256", "artifacts.overrides.kubelet.url"}},
		{"an override that is applied", "", override("", "aa"), override("", "aa"), nil},
		{"another digest than the applied one", "", override("", "bb"), override("", "aa"),
			[]string{"artifacts.overrides.kubelet.sha256"}},
		{"no override any more", "", unchanged, override("", "aa"), nil},
		{"an override, allowed", `{"allow": {"overrides": true}}`, override("", "aa"), nil, nil},
		{"URL templates", "", func(c *config.Config) { kubernetes(c); runc(c) }, nil,
			[]string{"kubernetes.urlTemplate", "runc.url"}},
		{"a URL template that is applied", "", runc, runc, nil},
		{"URL templates, allowed", `{"allow": {"urlTemplates": true}}`, kubernetes, nil, nil},
		{"paths", "", func(c *config.Config) { path(c); logs(c); textfile(c); directory(c) }, nil,
			[]string{"agent.logDir", "agent.metrics.textfile", "artifacts.directory", "paths.cni.binDir"}},
		{"a user of the machine", "", user, nil, []string{"azure.cliUser"}},
		{"paths that are applied", "", func(c *config.Config) { path(c); logs(c) },
			func(c *config.Config) { path(c); logs(c) }, nil},
		{"the default path on a machine with another", "", unchanged, path, nil},
		{"paths, allowed", `{"allow": {"paths": true}}`, func(c *config.Config) { path(c); textfile(c) },
			nil, nil},
		{"checksums of mirrors", "", trusting, nil, []string{"artifacts.trustMirrorChecksums"}},
		{"checksums of mirrors, as applied", "", trusting, trusting, nil},
		{"checksums of mirrors no more", "", unchanged, trusting, nil},
		{"checksums of mirrors, allowed", `{"allow": {"mirrorChecksums": true}}`, trusting, nil, nil},
		{"another API server, as usual", "", func(c *config.Config) { server(c); ca(c) }, unchanged, nil},
		{"another API server", `{"allow": {"apiServer": false}}`,
			func(c *config.Config) { server(c); ca(c); manager(c) }, unchanged,
			[]string{"azure.resourceManagerEndpoint", "node.kubelet.caCertData", "node.kubelet.serverURL"}},
		{"Arc, as usual", "", arc, unchanged, nil},
		{"Arc", `{"allow": {"apiServer": false}}`, arc, unchanged, []string{"azure.arc.enabled"}},
		{"Arc that is applied", `{"allow": {"apiServer": false}}`, arc, arc, nil},
		{"Arc at the first join", `{"allow": {"apiServer": false}}`, arc, nil, nil},
		{"the first API server", `{"allow": {"apiServer": false}}`, server, nil, nil},
		{"proxies, as usual", "", func(c *config.Config) { proxy(c); direct(c) }, nil, nil},
		{"proxies", `{"allow": {"proxies": false}}`, func(c *config.Config) { proxy(c); direct(c) }, nil,
			[]string{"proxy.https", "proxy.noProxy[0]"}},
		{"the applied proxy", `{"allow": {"proxies": false}}`, proxy, proxy, nil},
		{"tokens for the provider", "", audience("api://x"), nil, nil},
		{"tokens for Azure", "", audience(arm), nil, []string{"agent.monitoring.audience"}},
		{"tokens for Azure, applied", "", audience(arm), audience(arm), nil},
		{"tokens for Azure, allowed", `{"allow": {"audiences": true}}`, audience(arm), nil, nil},
		{"old versions, as usual", "", older, unchanged, nil},
		{"old versions", floors, older, unchanged,
			[]string{"containerd.version", "kubernetes.version", "runc.version"}},
		{"old versions that are applied", floors, older, older, nil},
		{"old versions at the join", floors, older, nil,
			[]string{"containerd.version", "kubernetes.version", "runc.version"}},
		{"a version that is left open", floors, open, nil, nil},
		{"new versions", floors, unchanged, older, nil},
		{"hosts, as usual", "", func(c *config.Config) { mirrors(c); pause(c); manager(c) }, nil, nil},
		{"hosts of downloads", `{"hosts": {"downloads": ["m.example"]}}`,
			func(c *config.Config) { mirrors(c); pause(c) }, nil,
			[]string{"artifacts.mirrors[0]", "containerd.pauseImage"}},
		{"allowed hosts of downloads",
			`{"hosts": {"downloads": ["m.example", "m2.example", "r.example"]}}`,
			func(c *config.Config) { mirrors(c); pause(c) }, nil, nil},
		{"an image without a host", `{"hosts": {"downloads": ["m.example"]}}`, docker, nil,
			[]string{"containerd.pauseImage"}},
		{"templates and overrides elsewhere",
			`{"hosts": {"downloads": ["m.example"]}, "allow": {"overrides": true, "urlTemplates": true}}`,
			func(c *config.Config) { runc(c); kubernetes(c); override("https://x.example/k", "aa")(c) }, nil,
			[]string{"artifacts.overrides.kubelet.url", "kubernetes.urlTemplate", "runc.url"}},
		{"a host that depends on the version",
			`{"hosts": {"downloads": ["m.example"]}, "allow": {"urlTemplates": true}}`, hostless, nil,
			[]string{"runc.url"}},
		{"packages of the Arc agent elsewhere",
			`{"hosts": {"downloads": ["m.example"]}, "allow": {"overrides": true}}`, arcURL, nil,
			[]string{"azure.arc.package.url"}},
		{"no host at all", `{"hosts": {"downloads": []}}`, mirrors, nil,
			[]string{"artifacts.mirror", "artifacts.mirrors[0]", "artifacts.mirrors[1]"}},
		{"endpoints", `{"hosts": {"endpoints": ["api.example"]}}`,
			func(c *config.Config) {
				manager(c)
				c.Azure.AuthorityHost = "https://login.example"
				c.Agent.Monitoring.Endpoint = "https://poll.example:8443"
			}, nil,
			[]string{"agent.monitoring.endpoint", "azure.authorityHost", "azure.resourceManagerEndpoint"}},
		{"registries", `{"hosts": {"endpoints": ["a.azurecr.io", "api.example"]}}`,
			func(c *config.Config) {
				c.Azure.Registries = []string{"a.azurecr.io", "a.azurecr.io:5000", "*.azurecr.io", "b.example"}
			}, nil, []string{"azure.registries[2]", "azure.registries[3]"}},
		{"another repository of the Arc agent", "", func(c *config.Config) {
			c.Azure.Arc = &config.Arc{Package: &config.ArcPackage{KeyFile: "/etc/ca.crt"}}
		}, nil, []string{"azure.arc.package.keyFile"}},
		{"an endpoint that is applied", `{"hosts": {"endpoints": ["api.example"]}}`, manager,
			manager, nil},
		{"another API server elsewhere", `{"hosts": {"endpoints": ["api.example"]}}`, server, nil,
			[]string{"node.kubelet.serverURL"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p Policy
			if tt.policy != "" {
				var err error
				if p, err = Parse([]byte(tt.policy)); err != nil {
					t.Fatal(err)
				}
			}
			var applied *config.Config
			if tt.applied != nil {
				c := configured(tt.applied)
				applied = &c
			}
			problems := p.Check(configured(tt.wanted), applied, config.Defaults())
			var paths []string
			for _, problem := range problems {
				paths = append(paths, problem.Path)
				if !strings.Contains(problem.Message, File) {
					t.Errorf("it does not name the policy: %s", problem)
				}
			}
			if diff := cmp.Diff(tt.refused, paths); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
			if text := problems.Error(); strings.Contains(text, "secret") {
				t.Errorf("it shows a secret: %s", text)
			}
		})
	}
}

// Every problem of a policy is named, with its path.
func TestParseNamesEachProblem(t *testing.T) {
	const host = "must be the name or IP address of a host, in lower case, without a port"
	for text, want := range map[string]string{
		``:               `the document is empty`,
		`[]`:             `the document must be an object ({...}), not a list`,
		`{`:              `line 1, column 1: unexpected end of JSON input`,
		`{"deletion":1}`: `deletion: must be a string, not a number`,
		`{"deletion": "never", "deletion": "follow"}`: `deletion: is given twice: keep one`,
		`{"deletion": "no", "minimumVersions": {"runc": "1.3"}, "hosts": {"downloads": ["a", "https://b"],
			"endpoints": ["B"]}}`: `deletion: "no" is not allowed: must be follow, confirm or never
hosts.downloads[1]: "https://b" is not allowed: ` + host + `
hosts.endpoints[0]: "B" is not allowed: ` + host + `
minimumVersions.runc: "1.3" is not allowed: must be a version x.y.z`,
		`{"deletion": "", "allow": {"paths": null, "proxy": true}, "hosts": {"downloads": [""]}}`: `` +
			`allow.paths: must be omitted, not null
allow.proxy: is not known; known names: overrides, urlTemplates, mirrorChecksums, paths, ` +
			`apiServer, proxies, audiences
deletion: must be omitted, not ""
hosts.downloads[0]: must be omitted, not ""`,
		`{"diagnose": {"doctor": "ask", "key": "age1x"}}`: `` +
			`diagnose.doctor: "ask" is not allowed: must be allow or refuse
diagnose.key: "age1x" is not allowed: must be a recipient of age: age1...`,
	} {
		_, err := Parse([]byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n%v\nwant\n%s", text, err, want)
		}
	}
}

// What is shown is what is in force: of an empty policy the usual limits, and of one that sets them
// all the file's.
func TestLimits(t *testing.T) {
	shown := func(text string) (values, from []string) {
		p, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.Limits() {
			values, from = append(values, l.Name+" "+l.Value), append(from, l.From)
			if l.Means == "" {
				t.Errorf("%s means nothing", l.Name)
			}
		}
		return values, from
	}
	values, from := shown(`{}`)
	if diff := cmp.Diff([]string{"deletion follow", "minimumVersions.kubernetes none",
		"minimumVersions.containerd none", "minimumVersions.runc none", "hosts.downloads any",
		"hosts.endpoints any", "agentUpdates allowed", "allow.overrides refused",
		"allow.urlTemplates refused", "allow.mirrorChecksums refused", "allow.paths refused",
		"allow.apiServer allowed", "allow.proxies allowed", "allow.audiences refused",
		"diagnose.doctor allow",
		"diagnose.supportBundle allow", "diagnose.key none"}, values); diff != "" {
		t.Errorf("the usual limits (-want +got):\n%s", diff)
	}
	if text := strings.Join(from, " "); strings.Contains(text, File) {
		t.Errorf("from %s", text)
	}
	values, from = shown(`{"deletion": "never", "agentUpdates": false,
		"minimumVersions": {"kubernetes": "1.34.0", "containerd": "2.0.0", "runc": "1.3.3"},
		"hosts": {"downloads": [], "endpoints": ["a.example", "::1"]}, "allow": {"overrides": true,
		"urlTemplates": true, "mirrorChecksums": true, "paths": true, "apiServer": false,
		"proxies": false, "audiences": true},
		"diagnose": {"doctor": "refuse", "supportBundle": "allow", "key": "` + recipient + `"}}`)
	if diff := cmp.Diff([]string{"deletion never", "minimumVersions.kubernetes 1.34.0",
		"minimumVersions.containerd 2.0.0", "minimumVersions.runc 1.3.3", "hosts.downloads none",
		"hosts.endpoints a.example, ::1", "agentUpdates refused", "allow.overrides allowed",
		"allow.urlTemplates allowed", "allow.mirrorChecksums allowed", "allow.paths allowed",
		"allow.apiServer refused", "allow.proxies refused", "allow.audiences allowed",
		"diagnose.doctor refuse",
		"diagnose.supportBundle allow", "diagnose.key " + recipient}, values); diff != "" {
		t.Errorf("the limits of a file (-want +got):\n%s", diff)
	}
	if text := strings.Join(from, " "); strings.Contains(text, "default") {
		t.Errorf("from %s", text)
	}
}

// recipient is a key that support bundles can be encrypted to.
const recipient = "age1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2z"

// A provider gets a diagnosis if the policy does not refuse it, and a bundle only with a key.
func TestDiagnoseRefuses(t *testing.T) {
	for text, refused := range map[string]map[string]string{
		`{}`: {"doctor": "", "supportBundle": "no key", "shell": "does not know"},
		`{"diagnose": {"key": "` + recipient + `"}}`: {"doctor": "", "supportBundle": ""},
		`{"diagnose": {"doctor": "refuse", "supportBundle": "refuse", "key": "` + recipient + `"}}`: {
			"doctor": "diagnose.doctor refuses", "supportBundle": "diagnose.supportBundle refuses"},
	} {
		p, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for kind, want := range refused {
			got := p.Diagnose.Refuses(kind)
			if (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s: %s: %q", text, kind, got)
			}
		}
	}
}
