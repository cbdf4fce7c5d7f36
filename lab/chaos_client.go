package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// chaosNode is a node under load.
type chaosNode struct{ name, id string }

// The number of nodes in the first and second clusters.
const (
	firstNodes  = 10
	secondNodes = 4
)

func chaosNodes() []chaosNode {
	var nodes []chaosNode
	for i := range firstNodes + secondNodes {
		name, cluster := fmt.Sprintf("chaos-%d", i), ClusterID
		if i >= firstNodes {
			cluster = SecondClusterID
		}
		nodes = append(nodes, chaosNode{name, cluster + "/flexNodeConfig/" + name})
	}
	return nodes
}

// inSecond reports whether a node is in the second cluster, which is deleted and registered again.
func (n chaosNode) inSecond() bool { return strings.HasPrefix(n.id, SecondClusterID) }

// chaosClient sends one operation after another.
type chaosClient struct {
	*chaosRun
	id     int
	random *rand.Rand
	// values and etags are the last seen ones by node, urls the URLs received.
	values map[string]int
	etags  map[string]string
	urls   map[string][]string // keys of credentials, by node
	last   int                 // value
}

// work sends operations until ctx ends.
func (c *chaosRun) work(ctx context.Context, id int) {
	client := &chaosClient{chaosRun: c, id: id, random: c.random(uint64(id)),
		values: map[string]int{}, etags: map[string]string{}, urls: map[string][]string{}}
	for ctx.Err() == nil {
		client.one(context.WithoutCancel(ctx))
	}
}

// one sends a random operation.
func (c *chaosClient) one(ctx context.Context) {
	n, replica := c.nodes[c.random.IntN(len(c.nodes))], c.random.IntN(c.lab.Replicas)
	c.last++
	s := step{node: n.name, value: c.id*1_000_000 + c.last}
	switch dice := c.random.IntN(100); {
	case dice < 22:
		s.verb = getOp
	case dice < 36:
		c.poll(ctx, n, replica)
		return
	case dice < 44:
		c.list(ctx, replica)
		return
	case dice < 59:
		s.verb = putOp
	case dice < 67: // mostly equal to the current configuration
		s.verb, s.value = putOp, c.values[n.name]
	case dice < 76:
		s.verb, s.url = putOp, true
		if c.random.IntN(3) == 0 {
			s.value = c.values[n.name]
		}
	case dice < 84:
		s.verb = regenerateOp
	case dice < 94:
		s.verb, s.credential = bundleOp, c.anyURL(n)
		if s.credential == "" {
			return
		}
	default:
		s.verb = deleteOp
	}
	c.record(ctx, n, replica, s)
}

// anyURL returns a known URL of a node, mostly the last one; "" if it has none.
func (c *chaosClient) anyURL(n chaosNode) string {
	known := c.urls[n.name]
	if len(known) == 0 {
		return ""
	}
	if c.random.IntN(3) == 0 {
		return known[c.random.IntN(len(known))]
	}
	return known[len(known)-1]
}

// record does an operation and adds it to the history.
func (c *chaosClient) record(ctx context.Context, n chaosNode, replica int, s step) {
	called := time.Since(c.began)
	out, refused := c.do(ctx, n, replica, s)
	if refused || !out.known && (s.verb == getOp || s.verb == bundleOp) { // without information
		c.mu.Lock()
		c.others++
		c.mu.Unlock()
		return
	}
	c.keep(c.id, s, out, called)
	if !out.known {
		return
	}
	if s.verb == putOp || s.verb == getOp && out.exists {
		c.etags[n.name], c.values[n.name] = out.etag, s.value
		if s.verb == getOp {
			c.values[n.name] = out.value
		}
	}
	if out.credential != "" {
		c.urls[n.name] = append(c.urls[n.name], out.credential)
	}
}

// keep adds an operation to the history.
func (c *chaosRun) keep(id int, s step, out outcome, called time.Duration) {
	op := porcupine.Operation{ClientId: id, Input: s, Call: called.Nanoseconds(), Output: out,
		Return: time.Since(c.began).Nanoseconds()}
	if !out.known {
		op.Return = 1<<62 - 1 // it may take effect at any later time
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, op)
}

// answer holds the response of a replica.
type answer struct {
	status int
	etag   string
	body   []byte
}

// code returns the code of an error response, or "".
func (a answer) code() string {
	var shown struct{ Error struct{ Code string } }
	_ = json.Unmarshal(a.body, &shown) // no code if it fails
	return shown.Error.Code
}

// ask sends a request of the operator to a replica. The status is 0 if there is no response.
func (c *chaosRun) ask(
	ctx context.Context, replica int, method, path string, body any, condition string,
) answer {
	header := map[string]string{"Authorization": "Bearer " + c.token}
	if condition != "" {
		header["If-None-Match"] = condition
	}
	return c.request(ctx, replica, method, path, body, header)
}

// request sends a request with the given header to a replica. The status is 0 if there is no
// response.
func (c *chaosRun) request(
	ctx context.Context, replica int, method, path string, body any, header map[string]string,
) answer {
	var content io.Reader
	if body != nil {
		text, _ := json.Marshal(body) // it always encodes
		content = bytes.NewReader(text)
	}
	mark := "?"
	if strings.Contains(path, "?") {
		mark = "&"
	}
	r, err := http.NewRequestWithContext(ctx, method,
		ReplicaURL(replica)+path+mark+"api-version="+ProviderAPI, content)
	if err != nil {
		return answer{}
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return c.send(r)
}

func (c *chaosRun) send(r *http.Request) answer {
	response, err := c.client.Do(r)
	if err != nil {
		time.Sleep(50 * time.Millisecond) // the replica may be down
		return answer{}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}
	}
	return answer{response.StatusCode, response.Header.Get("ETag"), text}
}

// do sends an operation of the model. It is refused if the node's cluster does not exist or is
// being deleted.
func (c *chaosRun) do(
	ctx context.Context, n chaosNode, replica int, s step,
) (out outcome, refused bool) {
	if s.verb == bundleOp {
		return c.fetch(ctx, replica, s.credential), false
	}
	a := c.ask(ctx, replica, method(s.verb), path(n, s), body(s), "")
	switch code := a.code(); {
	case code == "ParentResourceNotFound" || code == "ClusterIsBeingDeleted":
		if !n.inSecond() {
			c.blame("%s of %s was answered with %s", s.verb, s.node, code)
		}
		return outcome{known: true}, s.verb != getOp
	case a.status == http.StatusNoContent || a.status == http.StatusNotFound:
		return outcome{known: a.status == http.StatusNoContent || code == "ResourceNotFound"}, false
	case a.status == 0 || a.status >= 500 || a.status == http.StatusConflict ||
		a.status == http.StatusTooManyRequests:
		return outcome{}, false
	case a.status/100 != 2:
		c.blame("%s of %s was answered with %d %s", s.verb, s.node, a.status, a.body)
		return outcome{}, false
	}
	return c.outcome(s, a), false
}

func method(verb string) string {
	if verb == regenerateOp {
		return http.MethodPost
	}
	return verb
}

func path(n chaosNode, s step) string {
	switch {
	case s.verb == regenerateOp:
		return n.id + "/regenerateToken"
	case s.url:
		return n.id + "?configUrl=true&acceptOldCertificate=true"
	case s.verb == putOp:
		return n.id + "?acceptOldCertificate=true"
	}
	return n.id
}

func body(s step) any {
	if s.verb != putOp {
		return nil
	}
	labels := object{"value": strconv.Itoa(s.value)}
	return object{"properties": object{"nodeConfig": object{"labels": labels}}}
}

// shownNode is a node in a response, or the response to regenerateToken.
type shownNode struct {
	Name       string
	ETag       string
	ConfigURL  string
	Properties struct {
		ConfigURL  string
		NodeConfig struct{ Labels struct{ Value string } }
		Status     struct {
			Conditions []struct{ Type, Status, Reason string }
		}
	}
}

// outcome parses a successful response.
func (c *chaosRun) outcome(s step, a answer) outcome {
	var shown shownNode
	if s.verb == deleteOp {
		return outcome{known: true, exists: true}
	}
	if err := json.Unmarshal(a.body, &shown); err != nil && len(a.body) > 0 {
		return outcome{}
	}
	out := outcome{known: true, exists: true, etag: a.etag}
	switch s.verb {
	case putOp:
		out.exists = a.status != http.StatusCreated
	case getOp:
		out.value, _ = strconv.Atoi(shown.Properties.NodeConfig.Labels.Value) // 0 is never written
	}
	out.credential = c.told(shown.ConfigURL + shown.Properties.ConfigURL)
	return out
}

// told stores a URL that was handed out and returns the key of its credential.
func (c *chaosRun) told(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil {
		c.blame("a URL that was handed out is none: %v", err)
		return ""
	}
	key := strings.TrimSuffix(strings.TrimPrefix(u.Path, "/configs/"), ".json")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.urls[key] = u.RequestURI()
	return key
}

// fetch fetches the bundle at a credential's URL.
func (c *chaosRun) fetch(ctx context.Context, replica int, credential string) outcome {
	c.mu.Lock()
	uri := c.urls[credential]
	c.mu.Unlock()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, ReplicaURL(replica)+uri, nil)
	if err != nil {
		return outcome{}
	}
	a := c.send(r)
	if a.status == http.StatusForbidden {
		return outcome{known: true}
	}
	var bundle struct {
		Config struct {
			Node struct{ Labels map[string]string }
		}
	}
	if a.status != http.StatusOK || json.Unmarshal(a.body, &bundle) != nil {
		return outcome{}
	}
	value, err := strconv.Atoi(bundle.Config.Node.Labels["value"])
	if err != nil {
		c.blame("a bundle has no value: %s", a.body)
	}
	return outcome{known: true, exists: true, value: value}
}

// poll polls as an agent does. A response without a change does not read the store and may be
// slightly stale, so only others are in the history.
func (c *chaosClient) poll(ctx context.Context, n chaosNode, replica int) {
	called := time.Since(c.began)
	a := c.ask(ctx, replica, http.MethodGet, n.id, nil, c.etags[n.name])
	s := step{node: n.name, verb: getOp}
	if a.status == http.StatusOK {
		if out := c.outcome(s, a); out.known {
			c.keep(c.id, s, out, called)
			c.etags[n.name] = out.etag
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others++
}

// list reads all pages of a cluster's nodes and checks their order.
func (c *chaosClient) list(ctx context.Context, replica int) {
	names, ok := c.pages(ctx, replica, ClusterID)
	c.mu.Lock()
	c.others++
	c.mu.Unlock()
	if ok && !slices.IsSortedFunc(names, func(a, b shownNode) int {
		if a.Name == b.Name {
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	}) {
		c.blame("a list is not in order, or has a node twice: %v", names)
	}
}

// pages reads all pages of a list.
func (c *chaosRun) pages(ctx context.Context, replica int, cluster string) ([]shownNode, bool) {
	var all []shownNode
	query := "?$top=3"
	for range 100 {
		a := c.ask(ctx, replica, http.MethodGet, cluster+"/flexNodeConfig"+query, nil, "")
		var page struct {
			Value    []shownNode
			NextLink string
		}
		if a.status != http.StatusOK || json.Unmarshal(a.body, &page) != nil {
			return nil, a.status == http.StatusNotFound && a.code() == "ParentResourceNotFound"
		}
		all = append(all, page.Value...)
		if page.NextLink == "" {
			return all, true
		}
		u, err := url.Parse(page.NextLink)
		if err != nil {
			c.blame("a nextLink is no URL: %v", err)
			return nil, false
		}
		q := u.Query()
		q.Del("api-version")
		query = "?" + q.Encode()
	}
	c.blame("a list has no end")
	return nil, false
}
