package service

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/cluster"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// The metrics of alerts and dashboards are on /metrics, promtool accepts them, and the reference
// has all. The end of a kubeconfig's certificate is not told any more once it has a token.
func TestMetricsThatAreWatched(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.must(201, http.MethodPut, nodeURL("edge-1"), withToken)
		pass(time.Second)
		w.must(200, http.MethodGet, nodeURL("edge-1"), "", `If-None-Match: "x"`)
		dir := t.TempDir()
		l := pair(t, dir, "provider")
		data := func(file string) string {
			return base64.StdEncoding.EncodeToString(must(os.ReadFile(file)))
		}
		with := func(user string) string {
			file := write(t, dir, "kubeconfig", `{current-context: x, contexts: [{name: x, context:
				{cluster: x, user: x}}], clusters: [{name: x, cluster: {server: "https://x"}}],
				users: [{name: x, user: {`+user+`}}]}`)
			sources := w.api.Kubeconfigs.(*cluster.Sources)
			sources.Bindings = []cluster.Binding{{ClusterID: clusterID, Kubeconfig: file}}
			must(sources.Access(t.Context(), flexnode.Cluster{ID: clusterID}, false))
			return metrics(w)
		}
		shown := with("client-certificate-data: " + data(l.CertFile) + ", client-key-data: " +
			data(l.KeyFile))
		for _, file := range []string{"provider.rules.yaml", "provider.dashboard.json"} {
			text := string(must(os.ReadFile("../../../packaging/monitoring/" + file)))
			watched(t, file, strings.ReplaceAll(text, `\"`, `"`), shown)
		}
		checkMetrics(t, shown)
		documented(t, shown)
		const ends = "\nflexnode_rp_kubeconfig_ends_timestamp_seconds{"
		has(t, "with a certificate", shown, ends)
		equal(t, "it has an end with a token", strings.Contains(with("token: abc"), ends), false)
	})
}

// metrics returns the provider's metrics, as Prometheus reads them.
func metrics(w *world) string {
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(w.registry, promhttp.HandlerOpts{}).ServeHTTP(recorder,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return recorder.Body.String()
}

// The metric reports whether the store accepts writes, even if it does not answer.
func TestMetricOfWrites(t *testing.T) {
	silent := func(call storetest.Call) error {
		if call.Op == "health" {
			return errors.New("no answer")
		}
		return nil
	}
	inWorld(t, func(t *testing.T, w *world) {
		for _, tt := range []struct {
			change func()
			want   string
		}{
			{func() {}, "1"},
			{func() { w.memory.SetQuota(1) }, "0"},
			{func() { w.memory.SetQuota(0) }, "1"},
			{func() { w.memory.Before(silent) }, "0"},
		} {
			tt.change()
			has(t, "the metrics", metrics(w), "\nflexnode_rp_store_writable "+tt.want+"\n")
		}
	})
}

// The metric of clusters follows one that does not answer any more.
func TestMetricOfClusters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		pass(time.Minute)
		for _, lost := range []string{"0", "1"} {
			has(t, "the metrics", metrics(w),
				`flexnode_rp_clusters{reachable="false",state="Succeeded"} `+lost+"\n")
			w.cluster.Down.Store(true)
			pass(2 * time.Minute)
		}
		rows, _, err := w.store.Clusters.List(t.Context(), "")
		c := must(rows, err)[0]
		must(w.store.Update(t.Context(), "test", nil, func(v *store.View) error {
			c.Value.Facts, c.Value.Properties.ProvisioningState = "", api.Failed
			return w.store.Clusters.Put(v, c.Key, c.Value)
		}))
		pass(time.Second)
		has(t, "a refused one was never reached", metrics(w),
			`flexnode_rp_clusters{reachable="false",state="Creating"} 1`+"\n")
	})
}

var (
	selector = regexp.MustCompile(`((?:flexnode_rp|process)_[a-z_]+)(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`([a-z]+)(?:=|!=|=~|!~)"`)
)

// watched checks that each selector of a text has a metric, with all of its labels.
func watched(t *testing.T, file, text, shown string) {
	t.Helper()
	found := selector.FindAllStringSubmatch(text, -1)
	if len(found) < 8 {
		t.Errorf("%s asks for %d metrics only", file, len(found))
	}
	for _, asked := range found {
		lines := regexp.MustCompile(`(?m)^`+asked[1]+`(\{[^}]*\})? .*$`).FindAllString(shown, -1)
		if len(lines) == 0 {
			t.Errorf("%s asks for %s, which is not there", file, asked[1])
		}
		for _, label := range matcher.FindAllStringSubmatch(asked[2], -1) {
			if label[1] != "job" && !slices.ContainsFunc(lines, func(line string) bool {
				return strings.Contains(line, label[1]+`="`)
			}) {
				t.Errorf("%s asks for %s%s, which has no label %s", file, asked[1], asked[2], label[1])
			}
		}
	}
}

// checkMetrics checks the provider's own metrics with promtool, if that is installed.
func checkMetrics(t *testing.T, shown string) {
	program, err := exec.LookPath("promtool")
	if err != nil {
		return
	}
	cmd := exec.Command(program, "check", "metrics")
	cmd.Stdin = bytes.NewReader([]byte(shown))
	out, _ := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "flexnode_rp_") {
			t.Errorf("promtool: %s", line)
		}
	}
}
