package front

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const usagesURL = "/subscriptions/" + subscription +
	"/providers/Microsoft.ContainerService/locations/westeurope/usages" + versionQuery

// A subscription has no more than its quotas; the error shows its usage and the contact for more.
func TestQuotas(t *testing.T) {
	w := newEdge(t)
	w.api.Quotas = fair.Quotas{
		Default:       fair.Quota{Nodes: 1, Clusters: 1, Tokens: 1},
		Subscriptions: map[string]fair.Quota{strings.ToUpper(subscription): {Nodes: 2}},
		Contact:       "edge-team@example.com",
	}
	refused := func(method, url, body, resource string) {
		t.Helper()
		_, text := w.must(409, method, url, body)
		if code(text) != "QuotaExceeded" || !strings.Contains(text, resource+" quota") ||
			!strings.Contains(text, "edge-team@example.com") {
			t.Error(text)
		}
	}
	w.must(201, "PUT", nodeURL("a"), withToken)
	w.must(201, "PUT", nodeURL("b")+"&configUrl=true", withToken)
	refused("PUT", nodeURL("c"), withToken, "FlexNodes")
	refused("PUT", nodeURL("a")+"&configUrl=true", withToken, "FlexNodeTokens")
	refused("POST", nodeURL("a", "/regenerateToken"), "{}", "FlexNodeTokens")
	refused("PUT", strings.Replace(cluster, "Factory", "Other", 1)+versionQuery,
		`{"location":"westeurope","properties":{}}`, "FlexNodeClusters")
	// What is there can be changed, and a token be replaced.
	w.must(200, "PUT", nodeURL("a"), strings.Replace(withToken, "prod", "test", 1))
	w.must(200, "POST", nodeURL("b", "/regenerateToken"), "{}")
	w.must(200, "PUT", cluster+versionQuery, `{"location":"northeurope","properties":{}}`)
	w.caughtUp()
	_, text := w.must(200, "GET", usagesURL, "")
	const want = `{"value":[{"unit":"Count","name":{"value":"FlexNodes",` +
		`"localizedValue":"Flex nodes"},"currentValue":2,"limit":2},`
	if !strings.HasPrefix(text, want) ||
		!strings.Contains(text, `"FlexNodeClusters","localizedValue":"Target clusters of flex `+
			`nodes"},"currentValue":1,"limit":1}`) ||
		!strings.Contains(text, `machine has used"},"currentValue":1,"limit":1}`) {
		t.Error(text)
	}
	// What was deleted makes room.
	w.must(200, "DELETE", nodeURL("b"), "")
	w.caughtUp()
	w.must(201, "PUT", nodeURL("c")+"&configUrl=true", withToken)
}

// A subscription whose nodes take too many bytes may make nothing larger, and everything smaller.
func TestQuotaOfBytes(t *testing.T) {
	w := newEdge(t)
	w.must(201, "PUT", nodeURL("a"), withToken)
	w.caughtUp()
	used, _ := w.index.Used(subscription)
	w.api.Quotas.Default.Bytes = used.Bytes
	larger := strings.Replace(withToken, "prod", "production", 1)
	for _, name := range []string{"a", "b"} {
		if _, text := w.must(409, "PUT", nodeURL(name), larger); code(text) != "QuotaExceeded" ||
			!strings.Contains(text, "FlexNodeBytes quota") {
			t.Error(text)
		}
	}
	w.must(200, "PUT", nodeURL("a"), withToken)
	w.must(200, "PUT", nodeURL("a"), strings.Replace(withToken, "prod", "x", 1))
	_, text := w.must(200, "GET", usagesURL, "")
	if !strings.Contains(text, `{"unit":"Bytes","name":{"value":"FlexNodeBytes",`) {
		t.Error(text)
	}
}

// A page of a list ends after some megabytes.
func TestPagesEndByBytes(t *testing.T) {
	w := beside(t)
	rows := make([]store.Row[flexnode.Node], 1000)
	for i := range rows {
		rows[i].Value.Desired.NodeConfig.Labels = map[string]string{
			"x": strings.Repeat("y", 8<<10)}
	}
	r := &request{Request: httptest.NewRequest("GET", "/", nil), listener: &listener{api: w.api}}
	nodes, err := w.api.listed(r, rows)
	size := 0
	for _, n := range nodes {
		size += len(n)
	}
	if n := len(nodes); err != nil || n >= len(rows) || n < 400 || size > maxPageBytes+16<<10 {
		t.Errorf("%d nodes in %d bytes, %v", n, size, err)
	}
}

// However many ask at once, one replica never lets in more than the quota.
func TestQuotaAtOnce(t *testing.T) {
	w := newEdge(t)
	w.share(nil, fair.AtOnce{})
	w.api.Quotas = fair.Quotas{Default: fair.Quota{Nodes: 25}}
	var made, refused atomic.Int64
	var running sync.WaitGroup
	for n := range 100 {
		running.Go(func() {
			switch got := w.ask("operator", "PUT", nodeURL(fmt.Sprint("n", n)), withToken); got.Code {
			case 201:
				made.Add(1)
			case 409:
				refused.Add(1)
			default:
				t.Errorf("%d %s", got.Code, got.Body)
			}
		})
	}
	running.Wait()
	w.caughtUp()
	used, _ := w.index.Used(subscription)
	if made.Load() != 25 || refused.Load() != 75 || used.Nodes != 25 {
		t.Errorf("made %d, refused %d, counted %d", made.Load(), refused.Load(), used.Nodes)
	}
}
