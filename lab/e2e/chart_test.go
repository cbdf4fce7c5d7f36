package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// The chart is in packaging/helm; the namespace is "restricted". The release is not named like the
// provider outside, whose rights in the cluster have that name.
const (
	chartDir       = "../../packaging/helm/flexnode-rp"
	chartRelease   = "inside"
	chartName      = "inside-flexnode-rp"
	chartClaim     = "data-" + chartName + "-0"
	chartNamespace = "flexnode"
	chartPort      = "30447"
	chartLabel     = "app.kubernetes.io/instance=" + chartRelease
)

// inCluster is a provider in the lab's cluster, on a node of the lab.
type inCluster struct {
	release, url, values string
}

// TestChart installs the chart into a real cluster with the real helm: a machine joins by the
// provider's URL and follows it. An upgrade, a rollback, a kill and a full volume keep the data;
// uninstalling leaves only what the chart says.
func TestChart(t *testing.T) {
	t.Parallel()
	runs := machine(t, "chart-1")
	must(t, runs, "bootstrap")
	joins := bareMachine(t, "chart-2")
	p := newInCluster(t, runs)

	if !t.Run("Install", func(t *testing.T) { p.installs(t) }) {
		return
	}
	f := p.joined(t, joins)
	t.Run("Upgrade", func(t *testing.T) { p.upgrades(t, f) })
	t.Run("Rollback", func(t *testing.T) { p.rollsBack(t, f) })
	t.Run("Killed", func(t *testing.T) { p.isKilled(t, runs, f) })
	t.Run("FullVolume", func(t *testing.T) { p.fills(t, runs, f) })
	f.left(t, joins)
	t.Run("Uninstall", func(t *testing.T) { p.uninstalls(t) })
	t.Run("Replicas", func(t *testing.T) { p.replicas(t) })
}

// newInCluster creates what the chart requires: namespace, Secrets, image and values.
func newInCluster(t *testing.T, m lab.Machine) *inCluster {
	t.Helper()
	ctx := t.Context()
	p := &inCluster{release: chartRelease, url: "https://" + m.IP + ":" + chartPort,
		values: filepath.Join(t.TempDir(), "values.json")}
	if err := bench.PublishProvider(ctx); err != nil {
		t.Fatal(err)
	}
	if err := bench.ChartSecrets(ctx, chartNamespace, m.IP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.forget(t) })
	if err := bench.LocalVolume(ctx, m, chartNamespace, chartClaim); err != nil {
		t.Fatal(err)
	}
	// a separate file system, like a cloud's volume
	output(t, m, "mount", "-t", "tmpfs", "-o", "size=1g,mode=0700", "flexlab", lab.VolumeDir)
	p.write(t, m, desired{"type": "NodePort", "nodePort": json.Number(chartPort)})
	return p
}

// write writes the values of a release on a node.
func (p *inCluster) write(t *testing.T, m lab.Machine, service desired) {
	t.Helper()
	settings, err := bench.ChartSettings(t.Context(), p.url)
	if err != nil {
		t.Fatal(err)
	}
	settings["drainSeconds"] = 1
	text, err := json.Marshal(desired{
		"image":        desired{"repository": lab.ChartImage, "tag": lab.ChartTag},
		"settings":     settings,
		"service":      service,
		"persistence":  desired{"size": "1Gi"},
		"nodeSelector": desired{"kubernetes.io/hostname": m.Name},
		"affinity":     nil,                          // the lab has only flex nodes
		"rbac":         desired{"revocation": false}, // the lab's own provider has installed it already
	})
	if err == nil {
		err = os.WriteFile(p.values, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// forget deletes everything that the test has created in the cluster.
func (p *inCluster) forget(t *testing.T) {
	if os.Getenv("KEEP_LAB") != "" {
		return
	}
	for _, args := range [][]string{
		{"delete", "namespace", chartNamespace, "--timeout=60s"},
		{"delete", "persistentvolume", chartNamespace + "-" + chartClaim},
		{"delete", "clusterrole,clusterrolebinding", "-l", chartLabel},
		{"delete", "role,rolebinding", "-A", "-l", chartLabel},
	} {
		_, err := bench.Kubectl(context.Background(), "", append(args, "--ignore-not-found")...)
		if err != nil {
			t.Log(err)
		}
	}
}

// helm runs a helm command for the release, which must succeed, and returns its output.
func (p *inCluster) helm(t *testing.T, command string, more ...string) string {
	t.Helper()
	args := append(strings.Fields(command), "-n", chartNamespace)
	out, err := bench.Helm(t.Context(), append(args, more...)...)
	if err != nil {
		pods, _ := bench.Kubectl(t.Context(), "", "-n", chartNamespace, "describe", "pods")
		logs, _ := bench.Kubectl(t.Context(), "", "-n", chartNamespace, "logs", "--tail=20", "-l",
			"app.kubernetes.io/name=flexnode-rp")
		t.Fatalf("%v\n%s\n%s\n%s", err, out, pods, logs)
	}
	return out
}

// pods returns the uids of the release's pods.
func (p *inCluster) pods(t *testing.T) []string {
	t.Helper()
	out, err := bench.Kubectl(t.Context(), "", "-n", chartNamespace, "get", "pods", "-l",
		"app.kubernetes.io/name=flexnode-rp,"+chartLabel, "-o",
		"jsonpath={.items[*].metadata.uid}")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(out)
}

// ask sends a request of the operator to the provider in the cluster.
func (p *inCluster) ask(
	t *testing.T, want int, method, path, version string, body any,
) map[string]any {
	t.Helper()
	var status int
	var text string
	eventually(t, "an answer of the provider in the cluster", func() (ok bool) {
		var err error
		status, text, err = bench.ARM(t.Context(), method, p.url, path, version, body)
		return err == nil // a Service lags behind its pods
	})
	if status/100 != want/100 {
		t.Fatalf("%s %s: %d, want %d: %s", method, path, status, want, text)
	}
	answer := map[string]any{}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return answer
}

// installs installs the release as in docs/how-to/provider-on-kubernetes.md, and registers the
// cluster that it runs in.
func (p *inCluster) installs(t *testing.T) {
	out := p.helm(t, "install "+p.release, chartDir, "-f", p.values, "--wait", "--timeout=3m")
	if !strings.Contains(out, "helm test "+p.release) {
		t.Errorf("the notes do not tell of the test:\n%s", out)
	}
	p.tested(t)
	p.registers(t)
	again, err := bench.Helm(t.Context(), "install", "second", chartDir, "-n", chartNamespace,
		"-f", p.values, "--set", "replica=2")
	if err == nil || !strings.Contains(err.Error(), "replica") {
		t.Errorf("a value that the chart does not have: %v %s", err, again)
	}
}

// tested runs the chart's own test.
func (p *inCluster) tested(t *testing.T) {
	t.Helper()
	if out := p.helm(t, "test "+p.release, "--timeout=2m"); !strings.Contains(out,
		"Phase:          Succeeded") {
		t.Errorf("helm test says\n%s", out)
	}
}

// registers registers the subscription, and the cluster with its address inside it.
func (p *inCluster) registers(t *testing.T) {
	t.Helper()
	p.ask(t, 200, http.MethodPost, "/subscriptions/"+lab.Subscription+
		"/providers/Microsoft.ContainerService/register", "2021-04-01", nil)
	p.ask(t, 201, http.MethodPut, lab.ClusterID, lab.ProviderAPI, desired{"location": "lab",
		"properties": desired{"kubeconfig": "in-cluster", "serverUrl": lab.APIServer,
			"dnsServiceIP": lab.DNSService}})
	eventually(t, "the registration of the cluster", func() bool {
		shown := p.ask(t, 200, http.MethodGet, lab.ClusterID, lab.ProviderAPI, nil)
		return properties(shown)["provisioningState"] == "Succeeded" &&
			properties(shown)["kubernetesVersion"] == lab.Newest.Kubernetes
	})
}

// guest is a machine that follows a provider in the cluster.
type guest struct {
	p      *inCluster
	name   string
	want   desired
	before []string
}

// joined joins a machine with a configuration URL.
func (p *inCluster) joined(t *testing.T, m lab.Machine) *guest {
	t.Helper()
	if err := bench.Install(m, agent); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "daemon-reload")
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	f := &guest{p: p, name: m.Name, before: snapshot(t.Context(), t, m), want: desired{
		"continuousMonitoring": true,
		"monitoring":           desired{"endpoint": p.url, "interval": "PT10S"},
		"versions":             lab.Newest.Desired(),
		"nodeConfig":           desired{"labels": desired{"line": "1"}},
		"azureAuth": desired{"method": "servicePrincipal", "servicePrincipal": desired{
			"clientId": who.Node.ClientID, "clientSecret": who.Node.Secret,
			"clientTenant": lab.Tenant}},
	}}
	made := p.ask(t, 201, http.MethodPut, rpNode(f.name)+"?configUrl=true", lab.ProviderAPI,
		desired{"properties": f.want})
	url, _ := properties(made)["configUrl"].(string)
	if url == "" { // the cluster takes longer than the request's timeout
		eventually(t, "the configuration URL", func() bool {
			status, text, err := bench.ARM(t.Context(), http.MethodPost, p.url,
				rpNode(f.name)+"/listConfigUrl", lab.ProviderAPI, desired{})
			var issued struct{ ConfigURL string }
			url = ""
			if err == nil && status == 200 && json.Unmarshal([]byte(text), &issued) == nil {
				url = issued.ConfigURL
			}
			return url != ""
		})
	}
	if !strings.HasPrefix(url, p.url+"/") {
		t.Fatalf("the configuration URL is %q", url)
	}
	out := output(t, m, "sh", "-c", "echo '"+url+"' | aks-flex-node agent --config-url-file -")
	if !strings.Contains(out, "is Ready") {
		t.Fatalf("the command says\n%s", out)
	}
	f.labelled(t, "2")
	return f
}

// labelled changes a label in the resource and waits until the Node has it.
func (f *guest) labelled(t *testing.T, value string) {
	t.Helper()
	f.want["nodeConfig"].(desired)["labels"] = desired{"line": value}
	f.p.ask(t, 200, http.MethodPut, rpNode(f.name), lab.ProviderAPI, desired{"properties": f.want})
	eventually(t, "the label in Kubernetes", func() bool {
		return nodeOf(t, f.name).Labels["line"] == value
	})
}

// kept returns the node's properties that a provider must not lose.
func (f *guest) kept(t *testing.T) [2]any {
	t.Helper()
	shown := f.p.ask(t, 200, http.MethodGet, rpNode(f.name), lab.ProviderAPI, nil)
	return [2]any{properties(shown)["resourceUid"], properties(shown)["configVersion"]}
}

// left deletes the node and checks that its machine is restored.
func (f *guest) left(t *testing.T, m lab.Machine) {
	t.Helper()
	f.p.ask(t, 200, http.MethodDelete, rpNode(f.name), lab.ProviderAPI, nil)
	eventually(t, "the machine to wait for another configuration", func() bool {
		out := output(t, m, "systemctl", "show", "-p", "StatusText", service)
		return strings.Contains(out, "waiting for a configuration")
	})
	output(t, m, "systemctl", "disable", "--now", service)
	same(t, f.before, snapshot(t.Context(), t, m))
}

// upgrades changes a setting of the provider: a new pod takes over the data, and the node follows
// it.
func (p *inCluster) upgrades(t *testing.T, f *guest) {
	was, pods := f.kept(t), p.pods(t)
	p.helm(t, "upgrade "+p.release, chartDir, "-f", p.values, "--set", "settings.logLevel=debug",
		"--wait", "--timeout=3m")
	if now := p.pods(t); len(now) != 1 || slices.Equal(now, pods) {
		t.Errorf("the pods were %v and are %v", pods, now)
	}
	if is := f.kept(t); is != was {
		t.Errorf("the node was %v and is %v", was, is)
	}
	f.labelled(t, "3")
}

// rollsBack rolls the release back to its first revision, with the current data.
func (p *inCluster) rollsBack(t *testing.T, f *guest) {
	was, pods := f.kept(t), p.pods(t)
	p.helm(t, "rollback "+p.release+" 1", "--wait", "--timeout=3m")
	if now := p.pods(t); len(now) != 1 || slices.Equal(now, pods) {
		t.Errorf("the pods were %v and are %v", pods, now)
	}
	if is := f.kept(t); is != was {
		t.Errorf("the node was %v and is %v", was, is)
	}
	settings, err := bench.Kubectl(t.Context(), "", "-n", chartNamespace, "get", "configmap",
		chartName, "-o", `jsonpath={.data.settings\.json}`)
	if err != nil || strings.Contains(settings, "logLevel") {
		t.Errorf("the settings after the rollback: %v %s", err, settings)
	}
	f.labelled(t, "4")
	p.tested(t)
}

// restarts returns the restart count of the only pod.
func (p *inCluster) restarts(t *testing.T) string {
	t.Helper()
	out, err := bench.Kubectl(t.Context(), "", "-n", chartNamespace, "get", "pods", "-l",
		"app.kubernetes.io/name=flexnode-rp,"+chartLabel, "-o",
		"jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// isKilled kills the provider, which restarts in the same pod with its data.
func (p *inCluster) isKilled(t *testing.T, m lab.Machine, f *guest) {
	was, pods, restarts := f.kept(t), p.pods(t), p.restarts(t)
	output(t, m, "sh", "-c", `for p in /proc/[0-9]*; do
		[ "$(cat $p/comm 2>/dev/null)" != flexnode-rp ] || kill -KILL "${p#/proc/}"
	done`)
	eventually(t, "another start of the provider", func() bool {
		return p.restarts(t) != restarts
	})
	if is := f.kept(t); is != was {
		t.Errorf("the node was %v and is %v", was, is)
	}
	if now := p.pods(t); !slices.Equal(now, pods) {
		t.Errorf("the pods were %v and are %v", pods, now)
	}
	f.labelled(t, "5")
}

// fills leaves little room on the store's volume: the provider keeps running and refuses writes,
// and `helm test` reports why. With room again it accepts writes.
func (p *inCluster) fills(t *testing.T, m lab.Machine, f *guest) {
	pods, restarts := p.pods(t), p.restarts(t)
	const full = "less than 192 MiB left"
	output(t, m, "sh", "-c", `used=$(df -Pk "$0" | awk 'NR == 2 {print $3}')
		mount -o remount,size=$((used + 100 * 1024))k "$0"`, lab.VolumeDir)
	f.want["nodeConfig"].(desired)["labels"] = desired{"line": "6"}
	refused := p.ask(t, 503, http.MethodPut, rpNode(f.name), lab.ProviderAPI,
		desired{"properties": f.want})
	if text, _ := json.Marshal(refused); !strings.Contains(string(text), "StoreFull") {
		t.Errorf("a write is answered with %s", text)
	}
	// The provider checks its store every five seconds.
	eventually(t, "a failure of helm test", func() bool {
		_, err := bench.Helm(t.Context(), "test", p.release, "-n", chartNamespace, "--timeout=1m")
		return err != nil
	})
	said, err := bench.Kubectl(t.Context(), "", "-n", chartNamespace, "logs", chartName+"-test")
	if err != nil || !strings.Contains(said, full) {
		t.Errorf("the test's pod says %q, %v; want %q", said, err, full)
	}
	f.kept(t) // reads still work
	output(t, m, "mount", "-o", "remount,size=1g", lab.VolumeDir)
	f.labelled(t, "6")
	p.tested(t)
	if p.restarts(t) != restarts || !slices.Equal(p.pods(t), pods) {
		t.Errorf("the provider has not gone on: %v, %s", p.pods(t), p.restarts(t))
	}
}

// uninstalls removes the release. The claim remains with the data, which the next release uses.
func (p *inCluster) uninstalls(t *testing.T) {
	p.helm(t, "uninstall "+p.release, "--wait", "--timeout=2m")
	p.leaves(t)
	p.helm(t, "install "+p.release, chartDir, "-f", p.values, "--wait", "--timeout=3m")
	shown := p.ask(t, 200, http.MethodGet, lab.ClusterID, lab.ProviderAPI, nil)
	if properties(shown)["provisioningState"] != "Succeeded" {
		t.Errorf("the registration is %v", shown)
	}
	p.helm(t, "uninstall "+p.release, "--wait", "--timeout=2m")
}

// leaves fails unless the embedded store's claim is all that remains of the release.
func (p *inCluster) leaves(t *testing.T) {
	t.Helper()
	var left []string
	eventually(t, "the objects of the release to go", func() bool {
		left = p.objects(t)
		return len(left) <= 1
	})
	if want := []string{"persistentvolumeclaim/" + chartClaim}; !slices.Equal(left, want) {
		t.Errorf("helm uninstall has left %v, want %v", left, want)
	}
}

// objects returns the release's objects in the cluster.
func (p *inCluster) objects(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, kinds := range []string{
		"all,configmap,secret,serviceaccount,persistentvolumeclaim,networkpolicy," +
			"poddisruptionbudget,role,rolebinding", "clusterrole,clusterrolebinding",
	} {
		out, err := bench.Kubectl(t.Context(), "", "get", kinds, "-A", "-l", chartLabel, "-o", "name")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Fields(out)...)
	}
	return all
}

// replicas installs replicas that share an external etcd with client certificates, and checks that
// one of them is enough.
func (p *inCluster) replicas(t *testing.T) {
	ctx := t.Context()
	url, client, err := bench.StartChartETCD(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bench.Kubectl(ctx, "", "-n", chartNamespace, "create", "secret", "generic",
		"etcd-client", "--from-file=ca.crt="+client[0], "--from-file=tls.crt="+client[1],
		"--from-file=tls.key="+client[2]); err != nil {
		t.Fatal(err)
	}
	p.helm(t, "install "+p.release, chartDir, "-f", p.values, "--wait", "--timeout=3m",
		"--set", "store=external,replicas=2,secrets.etcd=etcd-client,etcd.endpoints={"+url+"}")
	p.tested(t)
	p.registers(t)
	pods := p.pods(t)
	if len(pods) != 2 {
		t.Fatalf("the pods are %v", pods)
	}
	p.ask(t, 201, http.MethodPut, rpNode("chart-3"), lab.ProviderAPI, desired{"properties": desired{}})
	p.helm(t, "upgrade "+p.release, chartDir, "--reuse-values", "--set", "settings.logLevel=debug",
		"--wait", "--timeout=3m")
	eventually(t, "the former pods to end", func() bool { // helm does not wait for that
		now := p.pods(t)
		return len(now) == 2 && !slices.Contains(now, pods[0]) && !slices.Contains(now, pods[1])
	})
	shown := p.ask(t, 200, http.MethodGet, rpNode("chart-3"), lab.ProviderAPI, nil)
	if properties(shown)["provisioningState"] != "Succeeded" {
		t.Errorf("the node is %v", shown)
	}
	p.ask(t, 200, http.MethodDelete, rpNode("chart-3"), lab.ProviderAPI, nil)
	p.helm(t, "uninstall "+p.release, "--wait", "--timeout=2m")
	p.leaves(t)
}
