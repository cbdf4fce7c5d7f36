package front

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const principal = "aaaaaaaa-0000-0000-0000-000000000001"

const withPrincipal = `{"properties":{
	"continuousMonitoring":true,
	"azureAuth":{"method":"servicePrincipal","servicePrincipal":{
		"clientId":"` + principal + `","clientSecret":"hush-hush","clientTenant":"` + tenant + `"}},
	"kubernetesAuth":{"useAzureAuth":true},
	"versions":{"kubernetes":"1.34.4"},
	"nodeConfig":{"maxPods":50,"labels":{"environment":"prod"},"taints":["edge=true:NoSchedule"]}}}`

const withToken = `{"properties":{"nodeConfig":{"maxPods":50,"labels":{"environment":"prod"}}}}`

var withoutSecret = strings.ReplaceAll(withPrincipal, `"clientSecret":"hush-hush",`, "")

// A PUT of an existing node reads all rows at once, and writes all changes at once.
func TestPutAsksTheStoreOnce(t *testing.T) {
	w := beside(t)
	w.api.Defaults = defaults(benchDefaults())
	w.register("")
	first := strings.Replace(withPrincipal, "prod", "first", 1)
	w.must(201, "PUT", nodeURL("n"), withPrincipal)
	w.settles(200, "PUT", nodeURL("n"), first)
	for _, test := range []struct {
		body string
		want []int
	}{{first, []int{1, 0, 0, 1}}, {withPrincipal, []int{1, 1, 0, 2}}} {
		calls := w.calls()
		w.must(200, "PUT", nodeURL("n"), test.body)
		equal(t, "the calls to the store: reads, commits, watches, and of any kind",
			[]int{calls("read"), calls("commit"), calls("follow"), calls("")}, test.want)
	}
}

// The life of a node with an Azure identity, as in document 004.
func TestLifeOfANode(t *testing.T) {
	w := newEdge(t)
	r, text := w.must(201, "PUT", nodeURL("Edge-1")+"&configUrl=true", withPrincipal)
	n := shownNode(t, text)
	p := n.Properties
	equal(t, "id, name, type and ETag", []string{n.ID, n.Name, n.Type, n.ETag},
		[]string{cluster + "/flexNodeConfig/Edge-1", "Edge-1", api.ResourceType, r.Header.Get("ETag")})
	has(t, "the ETag", n.ETag, p.ConfigVersion)
	shows(t, "the state, and whether there is a URL", "Succeeded true", p.ProvisioningState,
		p.ConfigURL != "")
	equal(t, "the URL's life", p.ConfigURLExpires.Sub(w.clock.Now()), credential.Lifetime)
	shows(t, "the creator", "ops@example.com User", n.SystemData.CreatedBy,
		n.SystemData.CreatedByType)
	lacks(t, "the answer", text, "hush")
	checkBundle(t, w, p.ConfigURL)

	w.caughtUp()
	_, text = w.must(200, "GET", nodeURL("edge-1"), "")
	shown := shownNode(t, text)
	lacks(t, "a GET", text, "hush", "configUrl")
	_, err := config.Parse(shown.Properties.Config, config.Host{HostName: "x", Arch: "amd64"})
	has(t, "what the shown configuration lacks", fmt.Sprint(err), "clientSecret")
	r, _ = w.must(304, "GET", nodeURL("edge-1"), "", "If-None-Match: "+n.ETag)
	equal(t, "the ETag of a 304", r.Header.Get("ETag"), n.ETag)
	w.must(200, "GET", nodeURL("edge-1"), "", `If-None-Match: "7"`)

	w.settles(204, "POST", nodeURL("edge-1", "/reportStatus"),
		`{"appliedConfigVersion":"`+p.ConfigVersion+`","conditions":[
			{"type":"Applied","status":"True"}]}`)
	r, text = w.must(200, "GET", nodeURL("edge-1"), "")
	s := shownNode(t, text).Properties.Status
	shows(t, "the status", p.ConfigVersion+" true "+api.JoinReady, s.AppliedConfigVersion,
		told(s, "Applied"), s.Join.State)
	equal(t, "the ETag after a report of status", r.Header.Get("ETag"), n.ETag)

	changed := w.node(200, "PUT", nodeURL("edge-1"),
		strings.ReplaceAll(withoutSecret, "1.34.4", "1.35.0"))
	equal(t, "a change has a later version", changed.Properties.ConfigVersion > p.ConfigVersion, true)
	w.must(403, "GET", path(p.ConfigURL), "")
	checkDeletion(t, w, changed)
	has(t, "the audit log", w.audit.String(), "ops@example.com", "/flexNodeConfig/")
	lacks(t, "the audit log", w.audit.String(), "hush")
}

// checkBundle checks that the agent accepts the bundle of a URL.
func checkBundle(t *testing.T, w *world, url string) {
	t.Helper()
	_, bundle := w.must(200, "GET", path(url), "")
	host := config.Host{HostName: "other", Arch: "amd64"}
	c := must(config.Parse([]byte(bundle), host)).Config // as the agent takes it
	got := []any{
		c.Agent.NodeName, c.Azure.ServicePrincipal.ClientSecret.Reveal(),
		c.Azure.TargetCluster.ResourceID, c.Azure.TargetCluster.Location, c.Kubernetes.Version,
		c.Node.MaxPods, c.Node.Kubelet.ServerURL, c.Node.Kubelet.DNSServiceIP,
		c.ContinuousMonitoring, c.Azure.TenantID, c.Node.Labels["environment"], c.Node.Taints[0],
	}
	want := []any{
		"edge-1", "hush-hush", cluster, "westeurope", "1.34.4", 50, "https://factory.example:6443",
		"10.96.0.10", true, tenant, "prod", "edge=true:NoSchedule",
	}
	equal(t, "what the agent reads", got, want)
}

// checkDeletion deletes a node and makes another of its name.
func checkDeletion(t *testing.T, w *world, n api.FlexNodeConfig) {
	t.Helper()
	w.must(200, "DELETE", nodeURL("edge-1"), "")
	w.settles(204, "DELETE", nodeURL("edge-1"), "")
	w.refused(404, "ResourceNotFound", "GET", nodeURL("edge-1"), "", TombstoneInfo)
	_, text := w.must(404, "GET", nodeURL("never"), "")
	lacks(t, "the answer for a node that never was", text, TombstoneInfo)
	again := w.node(201, "PUT", accepting(nodeURL("edge-1")), withPrincipal).Properties
	shows(t, "a node that was made again has a later version, and the uid of the former one",
		"true false", again.ConfigVersion > n.Properties.ConfigVersion,
		again.ResourceUID == n.Properties.ResourceUID)
	w.must(404, "GET", strings.Replace(nodeURL("edge-1"), "Factory", "Unknown", 1), "")
}

// An equal PUT writes nothing, also after defaults, cluster and provider have changed (M6, M7).
func TestEqualPutWritesNothing(t *testing.T) {
	w := newEdge(t)
	open := strings.ReplaceAll(withPrincipal, `"versions":{"kubernetes":"1.34.4"},`, "")
	before := w.node(201, "PUT", nodeURL("n")+"&configUrl=true", open)
	_, bundle := w.must(200, "GET", path(before.Properties.ConfigURL), "")

	w.clock.Pass(1e12)
	w.api.Defaults = defaults(map[string]any{"agent": map[string]any{"logLevel": "debug"}})
	w.api.Renderer = "newer"
	w.upgrade("1.36.1")
	health := w.revision()
	same := strings.ReplaceAll(open, `"clientSecret":"hush-hush",`, "")
	for _, body := range []string{open, same} {
		after := w.node(200, "PUT", nodeURL("n"), body)
		before.Properties.ConfigURL, before.Properties.ConfigURLExpires = "", nil
		before.Properties.Status = after.Properties.Status
		equal(t, "after an equal PUT", after, before)
	}
	equal(t, "the revision after equal PUTs", w.revision(), health)
	url := must(w.api.Credentials.URL(t.Context(), w.storedNode("n").Credential))
	_, text := w.must(200, "GET", path(url.ConfigURL), "")
	equal(t, "what the URL hands out", text, bundle)
	// What is left open remains as it was chosen when something else changes.
	n := w.node(200, "PUT", nodeURL("n"), strings.ReplaceAll(same, "50", "51"))
	equal(t, "the version after a change of maxPods",
		shownConfig(t, n)["kubernetes"].(map[string]any)["version"], "1.35.4")
}

// ETags in requests (RPC, ETags; facts of a table there).
func TestPreconditions(t *testing.T) {
	w := newEdge(t)
	url := nodeURL("n")
	const body = `{"properties":{}}`
	w.must(412, "PUT", url, body, "If-Match: *")
	w.must(412, "PUT", url, body, `If-Match: "1"`)
	w.must(204, "DELETE", url, "", "If-Match: *")
	r, _ := w.must(201, "PUT", url, body, "If-None-Match: *")
	etag := r.Header.Get("ETag")
	w.must(412, "PUT", url, body, "If-None-Match: *")
	w.must(412, "PUT", url, body, `If-Match: "1"`)
	w.must(200, "PUT", url, body, "If-Match: *")
	w.must(200, "PUT", url, body, `If-Match: "1", `+etag)
	w.must(412, "POST", nodeURL("n", "/regenerateToken"), `{}`, `If-Match: "1"`)
	w.must(412, "DELETE", url, "", `If-Match: "1"`)
	w.must(200, "DELETE", url, "", "If-Match: "+etag)
}

func TestPages(t *testing.T) {
	w := newEdge(t)
	for i := range 7 {
		w.settles(201, "PUT", nodeURL(fmt.Sprintf("n-%d", i)), `{"properties":{}}`)
	}
	equal(t, "all pages", w.names(nodesURL+"&$top=3"), "n-0 n-1 n-2 n-3 n-4 n-5 n-6")
	_, text := w.must(200, "GET", nodesURL+"&$top=7", "")
	lacks(t, "the last page", text, "nextLink")
	none := strings.Replace(nodesURL, "Factory", "None", 1)
	w.refused(404, "ParentResourceNotFound", "GET", none, "")
}

// Of two deletions only one deletes the node; a node that is made meanwhile is another, and kept.
func TestTwoDeletes(t *testing.T) {
	w := newEdge(t)
	w.must(201, "PUT", nodeURL("n"), `{"properties":{}}`)
	inner := 0
	w.during("commit", func() { inner = w.do("DELETE", nodeURL("n"), "").StatusCode })
	w.must(204, "DELETE", nodeURL("n"), "")
	equal(t, "the other delete", inner, 200)
	w.must(201, "PUT", nodeURL("n"), `{"properties":{}}`)
	old := w.storedNode("n")
	w.during("commit", func() {
		inner = w.do("PUT", nodeURL("n"), `{"properties":{"nodeConfig":{"maxPods":9}}}`).StatusCode
	})
	w.must(200, "DELETE", nodeURL("n"), "")
	equal(t, "a PUT during a delete", inner, 200)
	n := w.node(201, "PUT", nodeURL("n"), `{"properties":{}}`)
	equal(t, "the new node has the uid of the old one", n.Properties.ResourceUID == old.UID, false)
	w.must(200, "GET", nodeURL("n"), "")
}

// A node made while another of its name is made and deleted has a later version than that.
func TestMadeAndDeletedMeanwhile(t *testing.T) {
	w := newEdge(t)
	var former api.FlexNodeConfig
	w.during("commit", func() {
		former = w.node(201, "PUT", nodeURL("n"), `{"properties":{"nodeConfig":{"maxPods":9}}}`)
		w.must(200, "DELETE", nodeURL("n"), "")
	})
	n := w.node(201, "PUT", nodeURL("n"), `{"properties":{}}`)
	last := former.Properties.ConfigVersion
	equal(t, "its version is later", n.Properties.ConfigVersion > last, true)
}

// A PUT that waits for its cluster gets an operation, which succeeds once the cluster is back.
func TestPutWhileTheClusterIsDown(t *testing.T) {
	w := newEdge(t)
	w.fails()
	r, text := w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	p := shownNode(t, text).Properties
	equal(t, "the state", p.ProvisioningState, api.Creating)
	equal(t, "the URL", p.ConfigURL, "")
	status := asyncOf(r)
	equal(t, "the operation", w.operation(status).Status, inProgress)
	w.cluster.isDown.Store(false)
	w.until("the operation ends", func() bool { return w.operation(status).Status == api.Succeeded })
	w.must(200, "POST", nodeURL("n", "/listConfigUrl"), "")
}

// A caller that waits for a URL while another writes gets an answer with its own version.
func TestPutWhileAnotherWaits(t *testing.T) {
	w := beside(t)
	w.fails()
	w.register("")
	w.must(201, "PUT", nodeURL("n"), withToken)
	w.api.Patience = 2 * time.Second
	put := func(pods int) chan api.FlexNodeConfig {
		done := make(chan api.FlexNodeConfig, 1)
		go func() {
			done <- w.node(200, "PUT", nodeURL("n")+"&configUrl=true",
				fmt.Sprintf(`{"properties":{"nodeConfig":{"maxPods":%d}}}`, pods))
		}()
		w.until("it is waiting", func() bool {
			n := w.storedNode("n")
			return n.Credential != "" && n.Desired.NodeConfig.MaxPods == pods
		})
		return done
	}
	first, mine := put(51), w.storedNode("n")
	second := put(52)
	w.cluster.isDown.Store(false)
	got := <-first
	equal(t, "the ETag that the first gets", got.ETag, mine.ETag())
	equal(t, "the pods that the first gets", got.Properties.NodeConfig.MaxPods, 51)
	got = <-second
	equal(t, "the second gets the ETag of the first", got.ETag == mine.ETag(), false)
	equal(t, "the pods that the second gets", got.Properties.NodeConfig.MaxPods, 52)
}

// Regenerating a token while the cluster is down is an operation, which a second request keeps.
func TestRegenerateWhileTheClusterIsDown(t *testing.T) {
	w := beside(t)
	result := w.regenerateInVain()
	credential := w.storedNode("n").Credential
	w.must(202, "POST", nodeURL("n", "/regenerateToken"), "{}")
	equal(t, "the credential after a retry", w.storedNode("n").Credential, credential)
	w.must(202, "GET", result, "")
	w.must(202, "POST", nodeURL("n", "/listConfigUrl"), "")
	equal(t, "the credential after listConfigUrl", w.storedNode("n").Credential, credential)
	w.cluster.isDown.Store(false)
	w.until("the URL is live", func() bool { return w.do("GET", result, "").StatusCode == 200 })
	url := reads[api.ConfigURL](w, 200, "GET", result, "").ConfigURL
	w.must(200, "GET", path(url), "")
}

// stop stops updates of the index that answers requests.
func (w *world) stop() {
	index := store.NewIndex(w.api.Store)
	must(0, index.Load(w.t.Context()))
	w.api.Index = index
}

// With an index that is behind, the present machine has access, and the former one learns nothing.
func TestIndexIsBehind(t *testing.T) {
	w, i, ops := guarded(t)
	w.settles(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"), ops)
	w.stop()
	w.must(200, "DELETE", nodeURL("n"), "", ops)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientB, "y"), ops)
	former, present := i.app(w, clientA), i.app(w, clientB)
	w.must(200, "GET", nodeURL("n"), "", present)
	w.must(204, "POST", nodeURL("n", "/reportStatus"), "{}", present)
	_, text := w.must(403, "GET", nodeURL("n"), "", former)
	lacks(t, "what the former machine gets", text, clientB)
	w.must(403, "POST", nodeURL("n", "/reportStatus"), "{}", former)
	w.must(403, "POST", nodeURL("n", "/refreshCredentials"), "{}", former)
}

// A subscription that was just registered counts as registered.
func TestIndexIsBehindASubscription(t *testing.T) {
	w := beside(t)
	w.tell(`{"state":"Unregistered"}`)
	w.stop()
	w.must(200, "POST", registerURL, "")
	w.api.Patience = time.Millisecond
	w.must(201, "PUT", clusterURL, registration(""))
}

// A registration without nodes can be deleted, even if the store lists nodes slowly.
func TestDeleteDoesNotListNodes(t *testing.T) {
	w := newEdge(t)
	w.during("scan", func() { w.clock.Pass(time.Minute) })
	w.must(202, "DELETE", clusterURL, "")
}

// A caller without a role costs the store next to nothing, whatever names it makes up.
func TestStrangersDoNotWorkTheStore(t *testing.T) {
	w, i, _ := guarded(t)
	who := i.app(w, clientB)
	reads := w.memory.Reads()
	for n := range 100 {
		w.must(403, "GET", nodeURL("made-up-"+strconv.Itoa(n)), "", who)
	}
	got := w.memory.Reads() - reads
	equal(t, fmt.Sprint(got, " reads of the store for 100 refused requests"), got <= 30, true)
}

// Each node gets a pod subnet of its own, also beyond the first guesses, until none is left.
func TestPodSubnets(t *testing.T) {
	t.Parallel()
	for pool, nodes := range map[string]int{"10.200.0.0/22": 4, "10.200.0.0/19": 32} {
		w := newWorld(t)
		w.register(`"podCidr":"fd00:10::/48","nodeCidrMask":64`)
		w.must(200, "PUT", clusterURL, pods(pool)) // while no node has a subnet
		equal(t, "subnets are known", w.storedCluster().SubnetsEpoch, 0)
		edit(w, w.api.Store.Clusters, clusterKey, func(c *flexnode.Cluster) { c.SubnetsEpoch = 1 })
		taken := map[string]bool{}
		subnet := func(name string) string {
			n := w.node(201, "PUT", nodeURL(name), `{"properties":{}}`)
			cni, _ := shownConfig(t, n)["cni"].(map[string]any)
			s, _ := cni["podCIDR"].(string)
			return s
		}
		for i := range nodes {
			s := subnet(fmt.Sprintf("n%d", i))
			shows(t, "the subnet "+s+" is of the pool, and is taken", "true false",
				strings.HasPrefix(s, "10.200."), taken[s])
			taken[s] = true
		}
		w.refused(409, "PodCIDRExhausted", "PUT", nodeURL("more"), `{"properties":{}}`)
		w.must(200, "DELETE", nodeURL("n2"), "")
		equal(t, "a node gets what was given back", taken[subnet("again")], true)
		w.must(400, "PUT", clusterURL, pods("10.201.0.0/22"))
	}
}

// pods returns a registration with a pool of pod subnets.
func pods(pool string) string { return registration(`"podCidr":"` + pool + `","nodeCidrMask":24`) }

// After a restore no pod subnet is assigned until those of the Nodes are known (M26).
func TestPodSubnetsAfterARestore(t *testing.T) {
	w := beside(t)
	w.register(`"podCidr":"10.200.0.0/22","nodeCidrMask":24`)
	w.must(201, "PUT", nodeURL("n1"), `{"properties":{}}`)
	s := w.api.Store
	w.change(func(v *store.View) error { _, err := s.RaiseEpoch(v); return err })
	w.api.Patience = time.Millisecond
	r, text := w.must(503, "PUT", nodeURL("n2"), `{"properties":{}}`)
	shows(t, "the refusal, with a time to retry", "PodSubnetsNotKnown true", code(text),
		r.Header.Get("Retry-After") != "")
	w.must(200, "PUT", nodeURL("n1"), `{"properties":{"nodeConfig":{"maxPods":40}}}`)
	edit(w, s.Clusters, clusterKey, func(c *flexnode.Cluster) { c.SubnetsEpoch = 2 })
	key := clusterKey + "/n2"
	slot, held, _ := flexnode.Slot(clusterKey, key, "10.200.0.0/22", 24, 3)
	first, _, _ := flexnode.Slot(clusterKey, key, "10.200.0.0/22", 24, 0)
	w.change(func(v *store.View) error { // its Node has one; one before it is free again
		s.PodCIDRs.Delete(v, first)
		return s.PodCIDRs.Put(v, slot, key)
	})
	w.must(201, "PUT", nodeURL("n2"), `{"properties":{}}`)
	equal(t, "the subnet of a node that has one", w.storedNode("n2").Chosen.PodCIDR, held)
}

// A new registration assigns no pod subnet until its Nodes have been seen; a PUT waits for that.
func TestPodSubnetsOfANewRegistration(t *testing.T) {
	w := beside(t)
	w.fails()
	w.must(201, "PUT", clusterURL, pods("10.200.0.0/22"))
	w.refused(503, "PodSubnetsNotKnown", "PUT", nodeURL("n1"), `{"properties":{}}`)
	w.must(404, "GET", nodeURL("n1"), "")
	w.api.Patience = 20 * time.Second
	calls := w.calls()
	var putting sync.WaitGroup
	putting.Go(func() { w.must(201, "PUT", nodeURL("n1"), `{"properties":{}}`) })
	w.until("the PUT waits", func() bool { return calls("read") > 0 })
	w.cluster.isDown.Store(false)
	putting.Wait()
	equal(t, "it has no pod subnet", w.storedNode("n1").Chosen.PodCIDR == "", false)
}

// DELETE reports whether the cluster still has the node's token.
func TestDeletionShowsATokenThatIsLeft(t *testing.T) {
	w := newEdge(t)
	for _, revoked := range []bool{true, false} {
		w.settles(201, "PUT", nodeURL("n")+"&configUrl=true", `{"properties":{}}`)
		if !revoked {
			w.fails()
		}
		_, text := w.settles(200, "DELETE", nodeURL("n"), "")
		has(t, "the answer", text, fmt.Sprintf(`"bootstrapTokenRevoked":%t`, revoked))
	}
}

// A pause makes no revision, but another ETag: a caller that has read the node before does not
// resume it, and gets no old copy.
func TestPauseHasAnETag(t *testing.T) {
	w := newEdge(t)
	r, _ := w.must(201, "PUT", nodeURL("a"), withToken)
	before := r.Header.Get("ETag")
	paused := strings.Replace(withToken, `"properties":{`,
		`"properties":{"upgradePolicy":{"paused":true},`, 1)
	r, _ = w.settles(200, "PUT", nodeURL("a"), paused, "If-Match: "+before)
	w.must(200, "GET", nodeURL("a"), "", "If-None-Match: "+before)
	w.must(304, "GET", nodeURL("a"), "", "If-None-Match: "+r.Header.Get("ETag"))
	w.must(412, "PUT", nodeURL("a"), withToken, "If-Match: "+before)
	equal(t, "paused", w.storedNode("a").Desired.UpgradePolicy.Paused, true)
	// Its agent is offered the same, and is not woken.
	etag := w.storedNode("a").ETag()
	equal(t, "the same offer", flexnode.SameOffer(before, etag), true)
	w.must(200, "PUT", nodeURL("a"), withToken, "If-Match: "+etag)
	equal(t, "the ETag after the pause", w.storedNode("a").ETag(), before)
}

// Alerts compare the number of Ready nodes, also while no node is Ready.
func TestReadyNodesAreCounted(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prometheus.CollectorFunc(newEdge(t).api.Gauges))
	for _, family := range must(registry.Gather()) {
		if family.GetName() != "flexnode_rp_nodes" {
			continue
		}
		for _, m := range family.GetMetric() {
			if strings.Contains(m.String(), `"True"`) && m.GetGauge().GetValue() == 0 {
				return
			}
		}
	}
	t.Error("no number of nodes that are Ready")
}
