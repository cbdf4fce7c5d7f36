package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// badCase is a change that makes a valid configuration invalid.
type badCase struct {
	patch string
	// path is the path of the only problem.
	path string
	// message is part of what the problem says.
	message string
}

// window is a document with a maintenance window.
func window(members string) string {
	return `{"agent": {"upgradePolicy": {"maintenanceWindow": {` + members + `}}}}`
}

func badTokenCases(t *testing.T) []badCase {
	return []badCase{
		// Structure.
		{`{"agent": {"nodName": "a"}}`, "agent.nodName",
			"known names: logLevel, logFormat, logDir, nodeName"},
		{`{"Azure": {}}`, "Azure", "is azure meant?"},
		{`{"maxPods": 5}`, "maxPods", "is node.maxPods meant?"},
		{`{"node": {"kubelet": {"clusterFqdn": "x"}}}`, "node.kubelet.clusterFqdn",
			"shutdownGracePeriodCriticalPods, clusterFQDN"},
		{`{"components": {"kubernets": "1.34.4"}}`, "components.kubernets",
			"known names: kubernetes, containerd, runc, sandboxImage"},
		{`{"components": 5}`, "components", "must be an object, not a number"},
		{`{"qqqqqqqqqq": 1}`, "qqqqqqqqqq", "known names: azure, kubernetes"},
		{`{"node": []}`, "node", "must be an object, not a list"},
		{`{"node": {"maxPods": "110"}}`, "node.maxPods", "must be a number, not a string"},
		{`{"node": {"maxPods": 1.5}}`, "node.maxPods", "whole number"},
		{`{"node": {"labels": {"a.b/c": true}}}`, `node.labels["a.b/c"]`,
			"must be a string, not true or false"},
		{`{"node": {"labels": {"kubernetes.azure.com/managed": 1}}}`,
			`node.labels["kubernetes.azure.com/managed"]`, "must be a string"},
		{`{"node": {"taints": ["a:NoSchedule", null]}}`, "node.taints[1]",
			"must be a string, not null"},
		{`{"agent": {"enableDriftDetectionAndRemediation": "yes"}}`,
			"agent.enableDriftDetectionAndRemediation", "must be true or false"},
		{`{"azure": {"registries": ["contoso.azurecr.io"]}}`, "azure.registries",
			"does not accept a bootstrap token"},
		{`{"azure": {"bootstrapToken": "x"}}`, "azure.bootstrapToken",
			"must be an object, not a string"},
		// Aliases.
		{`{"components": {"kubernetes": "1.33.0"}, "kubernetes": {"version": "1.34.4"}}`,
			"components.kubernetes", "another name for kubernetes.version"},
		{`{"components": {"containerd": "3.0.0"}}`, "components.containerd", "1.7.z or 2.y.z"},
		{`{"node": {"kubelet": {"serverURL": null, "clusterFQDN": "http://a"}}}`,
			"node.kubelet.clusterFQDN", "https URL"},
		{`{"agent": {"enableDriftDetectionAndRemediation": true, "driftPolicy": "report"}}`,
			"agent.enableDriftDetectionAndRemediation", "another name for agent.driftPolicy"},
		{`{"node": {"kubelet": {"swap": "UnlimitedSwap"}}}`, "node.kubelet.swap", "off or LimitedSwap"},
		{`{"kubernetes": {"version": "1.29.9"}, "node": {"kubelet": {"swap": "LimitedSwap"}}}`,
			"node.kubelet.swap", "needs Kubernetes 1.30"},
		// How changes reach the node.
		{`{"agent": {"upgradePolicy": {"drain": "minors"}}}`, "agent.upgradePolicy.drain",
			"must be minor, always or never"},
		{`{"agent": {"upgradePolicy": {"deadline": "30s"}}}`, "agent.upgradePolicy.deadline",
			"from 1m to 24h"},
		{`{"agent": {"upgradePolicy": {"maintenanceWindow": {"duration": "4h"}}}}`,
			"agent.upgradePolicy.maintenanceWindow.start", "must be set"},
		{`{"agent": {"upgradePolicy": {"maintenanceWindow": {"start": "02:00"}}}}`,
			"agent.upgradePolicy.maintenanceWindow.duration", "must be set"},
		{window(`"start": "24:00", "duration": "4h"`),
			"agent.upgradePolicy.maintenanceWindow.start", "00:00 to 23:59"},
		{window(`"start": "2:00", "duration": "4h"`),
			"agent.upgradePolicy.maintenanceWindow.start", "00:00 to 23:59"},
		{window(`"start": "02:00", "duration": "25h"`),
			"agent.upgradePolicy.maintenanceWindow.duration", "15m to 24h"},
		{window(`"start": "02:00", "duration": "4h", "utcOffset": "+14:01"`),
			"agent.upgradePolicy.maintenanceWindow.utcOffset", "-12:00 to +14:00"},
		{window(`"start": "02:00", "duration": "4h", "utcOffset": "02:000"`),
			"agent.upgradePolicy.maintenanceWindow.utcOffset", "-12:00 to +14:00"},
		{window(`"start": "02:00", "duration": "4h", "days": ["Sun"]`),
			"agent.upgradePolicy.maintenanceWindow.days[0]", "Sunday"},
		{window(`"start": "02:00", "duration": "4h", "days": ["Sunday", "Monday", "Sunday"]`),
			"agent.upgradePolicy.maintenanceWindow.days[2]", "given twice"},
		{`{"agent": {"monitoring": {"endpoint": "http://rp.example"}}}`,
			"agent.monitoring.endpoint", "https URL of a host"},
		{`{"agent": {"monitoring": {"endpoint": "https://me:hush@rp.example"}}}`,
			"agent.monitoring.endpoint", "https URL of a host"},
		{`{"agent": {"monitoring": {"audience": "api://a b"}}}`,
			"agent.monitoring.audience", "id of an application"},
		{`{"agent": {"monitoring": {"interval": "1s"}}}`, "agent.monitoring.interval", "10s to 1h"},
		// Versions.
		{`{"kubernetes": {"version": "1.34"}}`, "kubernetes.version", "x.y.z"},
		{`{"kubernetes": {"version": "latest"}}`, "kubernetes.version", "x.y.z"},
		{`{"kubernetes": {"version": "1.34.4/../.."}}`, "kubernetes.version", "x.y.z"},
		{`{"kubernetes": {"version": "1.28.9"}}`, "kubernetes.version", "1.29.0 or later"},
		{`{"kubernetes": {"version": "2.0.0"}}`, "kubernetes.version", "1.29.0 or later"},
		{`{"kubernetes": {"version": "1.36.0"}, "containerd": {"version": "1.7.30"}}`,
			"containerd.version", "2.y.z for Kubernetes 1.36.0"},
		{`{"containerd": {"version": "1.6.0"}}`, "containerd.version", "1.7.z or 2.y.z"},
		{`{"runc": {"version": "1.3"}}`, "runc.version", "x.y.z"},
		{`{"cni": {"version": "0.9.1"}}`, "cni.version", "1.3.0 or later"},
		{`{"npd": {"version": "v1"}}`, "npd.version", "x.y.z"},
		{`{"kubernetes": {"urlTemplate": "https://a.example/v1.34.4"}}`, "kubernetes.urlTemplate",
			"{version}"},
		{`{"kubernetes": {"urlTemplate": "https://a.example/v%s/node-linux-%s.tar.gz"}}`,
			"kubernetes.urlTemplate", "directory"},
		{`{"kubernetes": {"urlTemplate": "https://a.example/v{version}/arm64"}}`,
			"kubernetes.urlTemplate", "this machine is amd64"},
		{`{"runc": {"url": "https://a.example/v{version}/runc.{os}"}}`, "runc.url", "{version}"},
		{`{"runc": {"url": "https://a.example/v%s/runc.%s.%s"}}`, "runc.url", "a second %s"},
		{`{"runc": {"url": "https://a.example/v{version}/runc.arm64"}}`, "runc.url",
			"this machine is amd64"},
		{`{"containerd": {"pauseImage": "pause image"}}`, "containerd.pauseImage",
			"image reference"},
		{`{"containerd": {"metricsAddress": ":10257"}}`, "containerd.metricsAddress",
			"address:port"},
		{`{"containerd": {"metricsAddress": "127.0.0.1:70000"}}`, "containerd.metricsAddress",
			"address:port"},
		{`{"runc": {"url": "http://a.example/runc"}}`, "runc.url", "https URL"},
		// Node.
		{`{"agent": {"nodeName": "Edge_01"}}`, "agent.nodeName", "RFC 1123"},
		{`{"agent": {"nodeName": "` + strings.Repeat("a", 64) + `"}}`, "agent.nodeName",
			"at most 63"},
		{`{"node": {"adminKubeconfig": true}}`, "node.adminKubeconfig", "Azure cannot be queried"},
		{`{"node": {"maxPods": 0}}`, "node.maxPods", "1 to 1000"},
		{`{"node": {"maxPods": 1001}}`, "node.maxPods", "1 to 1000"},
		{`{"node": {"labels": {"-a": "b"}}}`, `node.labels["-a"]`, "every name here"},
		{`{"node": {"labels": {"a": "b c"}}}`, "node.labels.a", "label value"},
		{`{"node": {"labels": {"a": "b,x=y"}}}`, "node.labels.a", "label value"},
		{`{"node": {"labels": {"kubernetes.azure.com/managed": "true"}}}`,
			`node.labels["kubernetes.azure.com/managed"]`, `"false"`},
		{`{"node": {"labels": {"node-role.kubernetes.io/edge": ""}}}`,
			`node.labels["node-role.kubernetes.io/edge"]`, "kubelet may set"},
		{`{"node": {"taints": ["a=b"]}}`, "node.taints[0]", "key=value:Effect"},
		{`{"node": {"taints": ["a:Never"]}}`, "node.taints[0]", "NoExecute"},
		{`{"node": {"taints": ["a=1:NoSchedule", "b:NoExecute", "a=2:NoSchedule"]}}`,
			"node.taints[2]", "node.taints[0]"},
		// Kubelet.
		{`{"node": {"kubelet": {"kubeReserved": {"disk": "1Gi"}}}}`,
			"node.kubelet.kubeReserved.disk", "ephemeral-storage"},
		{`{"node": {"kubelet": {"kubeReserved": {"cpu": "lots"}}}}`,
			"node.kubelet.kubeReserved.cpu", "quantity"},
		{`{"node": {"kubelet": {"kubeReserved": {"cpu": "-1"}}}}`, "node.kubelet.kubeReserved.cpu",
			"quantity"},
		{`{"node": {"kubelet": {"evictionHard": {"memory": "1Gi"}}}}`,
			"node.kubelet.evictionHard.memory", "memory.available"},
		{`{"node": {"kubelet": {"evictionHard": {"nodefs.available": "101%"}}}}`,
			`node.kubelet.evictionHard["nodefs.available"]`, "percentage"},
		{`{"node": {"kubelet": {"evictionHard": {"pid.available": "0"}}}}`,
			`node.kubelet.evictionHard["pid.available"]`, "0% for none"},
		{`{"node": {"kubelet": {"verbosity": 11}}}`, "node.kubelet.verbosity", "0 to 10"},
		{`{"node": {"kubelet": {"containerLogMaxSize": "0"}}}`, "node.kubelet.containerLogMaxSize",
			"1Ki or more"},
		{`{"node": {"kubelet": {"containerLogMaxSize": "1.5Mi"}}}`, "node.kubelet.containerLogMaxSize",
			"without a fraction"},
		{`{"node": {"kubelet": {"containerLogMaxSize": "9Ei"}}}`, "node.kubelet.containerLogMaxSize",
			"without a fraction"},
		{`{"node": {"kubelet": {"containerLogMaxFiles": 1}}}`, "node.kubelet.containerLogMaxFiles",
			"2 to 100"},
		{`{"node": {"kubelet": {"imageGCHighThreshold": 101}}}`,
			"node.kubelet.imageGCHighThreshold", "0 to 100"},
		{`{"node": {"kubelet": {"imageGCHighThreshold": 70}}}`, "node.kubelet.imageGCLowThreshold",
			"lower than imageGCHighThreshold, which is 70"},
		{`{"node": {"kubelet": {"dnsServiceIP": "10.0.0"}}}`, "node.kubelet.dnsServiceIP",
			"IP address"},
		{`{"node": {"kubelet": {"nodeIP": "127.0.0.1"}}}`, "node.kubelet.nodeIP", "IP address"},
		{`{"node": {"kubelet": {"nodeIP": "10.1.1.1,10.1.1.2"}}}`, "node.kubelet.nodeIP", "IPv6"},
		{`{"node": {"kubelet": {"serverURL": null}}}`, "node.kubelet.serverURL", "must be set"},
		{`{"node": {"kubelet": {"serverURL": "http://edge.example"}}}`, "node.kubelet.serverURL",
			"https URL"},
		{`{"node": {"kubelet": {"serverURL": "https://edge.example/api"}}}`,
			"node.kubelet.serverURL", "https URL"},
		{`{"node": {"kubelet": {"serverURL": "https://edge.example:0"}}}`, "node.kubelet.serverURL",
			"https URL"},
		{`{"node": {"kubelet": {"caCertData": null}}}`, "node.kubelet.caCertData", "must be set"},
		{`{"node": {"kubelet": {"caCertData": "%%%"}}}`, "node.kubelet.caCertData", "not base64"},
		{`{"node": {"kubelet": {"caCertData": "aGVsbG8="}}}`, "node.kubelet.caCertData",
			"no PEM certificate"},
		{`{"node": {"kubelet": {"caCertData": "-----BEGIN CERTIFICATE-----"}}}`,
			"node.kubelet.caCertData", "base64 -w0"},
		{`{"node": {"kubelet": {"caCertData": ` +
			`"LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCkFBPT0KLS0tLS1FTkQgUFJJVkFURSBLRVktLS0tLQo="}}}`,
			"node.kubelet.caCertData", "data other than certificates"},
		{`{"node": {"kubelet": {"caCertData": "LS0tLS1CRUdJTiBQR1AgUFVCTElDIEtFWSBCTE9DSy0t` +
			`LS0tCgpBQUFBCj1BQUFBCi0tLS0tRU5EIF` +
			`BHUCBQVUJMSUMgS0VZIEJMT0NLLS0tLS0K` + certificate(t, true) + `"}}}`,
			"node.kubelet.caCertData", "data other than certificates"},
		{`{"node": {"kubelet": {"caCertData": "` + certificate(t, false) + `"}}}`,
			"node.kubelet.caCertData", "is not a CA certificate"},
		// Network.
		{`{"cni": {"podCIDR": "10.244.1.1/24"}}`, "cni.podCIDR", "address and mask of a network"},
		{`{"cni": {"podCIDR": "10.244.1.0"}}`, "cni.podCIDR", "subnet"},
		{`{"cni": {"podCIDR": "10.244.1.0/31"}}`, "cni.podCIDR", "/29"},
		{`{"cni": {"podCIDR": "10.0.0.0/24"}, "node": {"kubelet": {"dnsServiceIP": "10.0.0.10"}}}`,
			"cni.podCIDR",
			"must not overlap the cluster's services"},
		{`{"cni": {"podCIDR": "10.244.1.0/24"}, "node": {"kubelet": {"nodeIP": "10.244.1.9"}}}`,
			"cni.podCIDR", "node's own address"},
		{`{"proxy": {"http": "proxy.example:3128"}}`, "proxy.http", "http(s)://"},
		{`{"proxy": {"https": "socks5://proxy.example:3128"}}`, "proxy.https", "http(s)://"},
		{`{"proxy": {"noProxy": ["a.example", "b.example,c.example"]}}`, "proxy.noProxy[1]",
			"a host"},
		// Paths.
		{`{"paths": {"kubernetes": {"certsDir": "etc/certs"}}}`, "paths.kubernetes.certsDir",
			"absolute path"},
		{`{"paths": {"kubernetes": {"configDir": "/etc/../etc/kubernetes"}}}`,
			"paths.kubernetes.configDir", "clean"},
		{`{"paths": {"kubernetes": {"kubeletDir": "/var/lib"}}}`, "paths.kubernetes.kubeletDir",
			"not a system directory"},
		{`{"paths": {"kubernetes": {"kubeletDir": "/var/lib/aks-flex-node"}}}`,
			"paths.kubernetes.kubeletDir", "not overlap /var/lib/aks-flex-node"},
		{`{"paths": {"cni": {"binDir": "/opt/my plugins"}}}`, "paths.cni.binDir",
			"letters, digits"},
		{`{"paths": {"cni": {"confDir": "/var/lib/kubelet/net.d"}}}`, "paths.cni.confDir",
			"not overlap paths.kubernetes.kubeletDir"},
		{`{"agent": {"logDir": "/var/log"}}`, "agent.logDir", "not a system directory"},
		// Agent and artifacts.
		{`{"agent": {"logLevel": "verbose"}}`, "agent.logLevel", "debug, info"},
		{`{"agent": {"driftPolicy": "fix"}}`, "agent.driftPolicy", "report, repair or off"},
		{`{"agent": {"checkInterval": "2h"}}`, "agent.checkInterval", "from 10s to 10m"},
		{`{"agent": {"readyTimeout": "5"}}`, "agent.readyTimeout", "10s to 1h"},
		{`{"agent": {"readyTimeout": "2h"}}`, "agent.readyTimeout", "10s to 1h"},
		{`{"artifacts": {"mirror": "http://mirror.example"}}`, "artifacts.mirror", "https URL"},
		{`{"artifacts": {"mirrors": ["https://mirror.example?x=y"]}}`, "artifacts.mirrors[0]",
			"without user, query"},
		{`{"artifacts": {"directory": "artifacts"}}`, "artifacts.directory", "absolute path"},
		{`{"artifacts": {"overrides": {"kubelt": {"sha256": "` + strings.Repeat("0", 64) + `"}}}}`,
			"artifacts.overrides.kubelt", "one of kubelet"},
		{`{"artifacts": {"overrides": {"runc@v1.4.3": {"sha256": "` + strings.Repeat("0", 64) + `"}}}}`,
			`artifacts.overrides["runc@v1.4.3"]`, "kubelet@1.36.3"},
		{`{"artifacts": {"overrides": {"runc@": {"sha256": "` + strings.Repeat("0", 64) + `"}}}}`,
			`artifacts.overrides["runc@"]`, "kubelet@1.36.3"},
		{`{"artifacts": {"overrides": {"runc@1.4.3": {"sha256": "` + strings.Repeat("0", 64) + `", ` +
			`"tarSHA256": "` + strings.Repeat("0", 64) + `"}}}}`,
			`artifacts.overrides["runc@1.4.3"].tarSHA256`, "not an archive"},
		{`{"artifacts": {"overrides": {"cni-plugins": {}}}}`,
			`artifacts.overrides["cni-plugins"].sha256`, "must be set"},
		{`{"artifacts": {"overrides": {"runc": {"sha256": "abc"}}}}`,
			"artifacts.overrides.runc.sha256", "64 hexadecimal"},
		{`{"artifacts": {"overrides": {"runc": {"sha256": "` + strings.Repeat("0", 64) + `", ` +
			`"tarSHA256": "` + strings.Repeat("0", 64) + `"}}}}`,
			"artifacts.overrides.runc.tarSHA256", "not an archive"},
		{`{"artifacts": {"overrides": {"runc": {"sha256": "` + strings.Repeat("0", 64) + `", ` +
			`"size": -1}}}}`, "artifacts.overrides.runc.size", "bytes"},
		// Azure.
		{`{"azure": {"bootstrapToken": {"token": "ABCDEF.0123456789abcdef"}}}`,
			"azure.bootstrapToken.token", "a bootstrap token"},
		{`{"azure": {"bootstrapToken": {"token": null}}}`, "azure.bootstrapToken.token",
			"must be set"},
		{`{"azure": {"bootstrapToken": null}}`, "azure", "holds none"},
		{`{"azure": {"managedIdentity": {}}}`, "azure",
			"it holds bootstrapToken and managedIdentity"},
		{`{"azure": {"targetCluster": null}}`, "azure.targetCluster.resourceId", "must be set"},
		{`{"azure": {"targetCluster": {"resourceId": "/subscriptions/x/resourceGroups/y"}}}`,
			"azure.targetCluster.resourceId", "managed cluster"},
		{`{"azure": {"targetCluster": {"location": "West-Europe!"}}}`,
			"azure.targetCluster.location", "region"},
		{`{"azure": {"targetAgentPoolName": "Pool"}}`, "azure.targetAgentPoolName", "1 to 12"},
		{`{"azure": {"subscriptionId": "your-subscription-id"}}`, "azure.subscriptionId", "GUID"},
		{`{"azure": {"tenantId": "contoso"}}`, "azure.tenantId", "GUID"},
		{`{"azure": {"cloud": "AzureStack"}}`, "azure.cloud", "AzurePublicCloud"},
		{`{"azure": {"resourceManagerEndpoint": "http://management.example"}}`,
			"azure.resourceManagerEndpoint", "https URL"},
		{`{"azure": {"authorityHost": "https://login.example/tenant"}}`, "azure.authorityHost",
			"https URL"},
	}
}

func badAzureCases() []badCase {
	const sp = `"clientId": "` + testTenant + `"`
	return []badCase{
		{`{"azure": {"servicePrincipal": {"clientSecret": "` + testSecret + `"}}}`,
			"azure.servicePrincipal.clientId", "must be set"},
		{`{"azure": {"servicePrincipal": {` + sp + `}}}`, "azure.servicePrincipal",
			"exactly one of clientSecret"},
		{`{"azure": {"servicePrincipal": {` + sp + `, "clientSecret": "a", "certificateFile": ` +
			`"/etc/a.pem"}}}`, "azure.servicePrincipal", "it holds 2"},
		{`{"azure": {"servicePrincipal": {` + sp + `, "clientSecretFile": "files/secret"}}}`,
			"azure.servicePrincipal.clientSecretFile", "absolute path"},
		{`{"azure": {"servicePrincipal": {` + sp + `, "clientSecret": "a", "secretExpires": ` +
			`"2027-02-31"}}}`,
			"azure.servicePrincipal.secretExpires", "a day, such as"},
		{`{"azure": {"servicePrincipal": {` + sp + `, "clientSecret": "two words"}}}`,
			"azure.servicePrincipal.clientSecret", "printable"},
		{`{"azure": {"servicePrincipal": {` + sp + `, "clientSecret": "a", "clientTenant": ` +
			`"contoso"}}}`, "azure.servicePrincipal.clientTenant", "GUID"},
		{`{"azure": {"tenantId": null, "servicePrincipal": {` + sp + `, "clientSecret": "a"}}}`,
			"azure.tenantId", "must be set"},
		{`{"azure": {"managedIdentity": {}, "registries": ["*.azurecr.io", "*.io"]}}`,
			"azure.registries[1]", "at least two labels"},
		{`{"azure": {"managedIdentity": {}, "registries": ["https://contoso.azurecr.io"]}}`,
			"azure.registries[0]", "the host of a registry"},
		{`{"azure": {"managedIdentity": {"clientId": "x"}}}`, "azure.managedIdentity.clientId",
			"GUID"},
		{`{"azure": {"managedIdentity": {}, "arc": {}}}`, "azure",
			"it holds managedIdentity and arc"},
		{`{"azure": {"tenantId": null, "arc": {}}}`, "azure.tenantId", "must be set for Arc"},
		{`{"azure": {"targetCluster": {"location": null}, "arc": {}}}`, "azure.arc.location",
			"must be set for Arc"},
		{`{"azure": {"arc": {"machineName": "a/b"}}}`, "azure.arc.machineName", "1 to 54"},
		{`{"azure": {"arc": {"resourceGroup": "a."}}}`, "azure.arc.resourceGroup",
			"resource group"},
		{`{"azure": {"arc": {"tags": {"a=b": "c"}}}}`, `azure.arc.tags["a=b"]`, "name of a tag"},
		{`{"azure": {"arc": {"tags": {"a": "b\nc"}}}}`, "azure.arc.tags.a",
			"printable characters"},
		{`{"azure": {"arc": {"enabled": "true"}}}`, "azure.arc.enabled", "must be true or false"},
		{`{"azure": {"arc": {"enabled": false}}}`, "azure", "holds none"},
	}
}

func TestBadConfigurations(t *testing.T) {
	for _, c := range badTokenCases(t) {
		checkBad(t, tokenDocument(t).with(t, c.patch), c)
	}
	for _, c := range badAzureCases() {
		checkBad(t, azureDocument(t, `"cloud": "AzurePublicCloud"`).with(t, c.patch), c)
	}
}

func checkBad(t *testing.T, d document, c badCase) {
	t.Helper()
	t.Run(c.path+" "+cut(c.patch), func(t *testing.T) {
		problems := parseBad(t, d.bytes(t))
		if len(problems) != 1 || problems[0].Path != c.path ||
			!strings.Contains(problems[0].Message, c.message) {
			t.Errorf("got:\n%v\nwant only %s: ... %s", problems, c.path, c.message)
		}
	})
}

// TestNull shows that a null section is an absent one. The merge patches above cannot say so.
func TestNull(t *testing.T) {
	text := strings.Replace(string(tokenDocument(t).bytes(t)), `"azure":{`,
		`"proxy":null,"azure":{"managedIdentity":null,`, 1)
	if _, err := Parse([]byte(text), testHost()); err != nil {
		t.Error(err)
	}
}

func TestDuplicateNames(t *testing.T) {
	text := strings.Replace(string(tokenDocument(t).bytes(t)), `"azure":{`,
		`"agent":{"logLevel":"info","logLevel":"debug"},`+
			`"node":{"labels":{"a.b/c":"1","a.b/c":"1"}},"azure":{`, 1)
	want := []string{"agent.logLevel", "node", `node.labels["a.b/c"]`}
	var got []string
	for _, p := range parseBad(t, []byte(text)) {
		if p.Message == "is given twice: keep one" {
			got = append(got, p.Path)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestEveryProblemAtOnce also shows what a user sees.
func TestEveryProblemAtOnce(t *testing.T) {
	problems := parseBad(t, []byte(`{
		"azure": {"bootstrapToken": {"token": "short"}, "targetCluster": {"resourceId": "edge"}},
		"node": {"maxPods": 5000, "labels": {"a b": "c"}, "kubelet": {"imageGCLowThreshold": 90}},
		"agent": {"loglevel": "info"}
	}`))
	want := strings.Join([]string{
		"agent.loglevel: is not known here: is agent.logLevel meant?",
		"azure.bootstrapToken.token: [redacted] is not allowed: must be a bootstrap token: " +
			"6 characters, a dot, 16 characters, each a-z or 0-9",
		`azure.targetCluster.resourceId: "edge" is not allowed: must be the id of a ` +
			"managed cluster: /subscriptions/<GUID>/resourceGroups/<name>" +
			"/providers/Microsoft.ContainerService/managedClusters/<name>",
		"node.kubelet.caCertData: must be set: Azure cannot be queried with a bootstrap token for it",
		"node.kubelet.imageGCLowThreshold: 90 is not allowed: " +
			"must be lower than imageGCHighThreshold, which is 85",
		"node.kubelet.serverURL: must be set: Azure cannot be queried with a bootstrap token for it",
		`node.labels["a b"]: every name here must be a label that a node may set on itself: ` +
			"[prefix/]name, name of up to 63 letters, digits, '-', '_', '.'; " +
			"of the prefixes kubernetes.io and k8s.io only those that kubelet may set",
		"node.maxPods: 5000 is not allowed: must be a whole number from 1 to 1000",
	}, "\n")
	if diff := cmp.Diff(want, problems.Error()); diff != "" {
		t.Error(diff)
	}
}

// TestDefaultsAreAllowed holds that no default is refused.
func TestDefaultsAreAllowed(t *testing.T) {
	c := defaults()
	for _, l := range leaves(&c) {
		if l.value.Kind() == reflect.Map {
			continue
		}
		rule := rules[l.must]
		if text := l.text(); text != "" && rule.ok != nil && !rule.ok(text) {
			t.Errorf("%s: %s is the default and not allowed", l.path(), l.shown())
		}
	}
}

// TestRules holds that every setting has a rule, and every rule a setting.
func TestRules(t *testing.T) {
	used := map[string]bool{}
	for _, s := range reference(t) {
		if _, known := rules[s.rule]; !known && s.typ != "boolean" {
			t.Errorf("%s has no rule", s.pattern)
		}
		used[s.rule] = true
	}
	for name := range rules {
		if !used[name] {
			t.Errorf("the rule %s is for no setting", name)
		}
	}
}
