package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// memory is a network within the process, so that waiting takes no time in a synctest bubble.
type memory struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { return nil }
func (m *memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// inMemory is a client of a handler, for use in a bubble.
func inMemory(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	m := &memory{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: handler}
	go server.Serve(m)
	c, err := FromToken("http://api.test", nil, secret, Options{
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			local, remote := net.Pipe()
			select {
			case m.conns <- remote:
				return local, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		close(m.closed)
		server.Close()
	})
	return c
}

func nodeIs(w http.ResponseWriter, status corev1.ConditionStatus, message string) {
	n := Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure},
		{Type: corev1.NodeReady, Status: status, Message: message},
	}
	answer(w, n)
}

func isReady(n Node) bool { return Ready(n).Status == corev1.ConditionTrue }

// A Node that is not there, a server that is ill and one that has not reported are waited for.
func TestWaitNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		asked, told := 0, 0
		c := inMemory(t, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			switch age := time.Since(start); {
			case age < time.Minute:
				refuse(w, 404, metav1.StatusReasonNotFound, "not found")
			case age < 2*time.Minute:
				refuse(w, 500, metav1.StatusReasonInternalError, "ill")
			case age < 3*time.Minute:
				nodeIs(w, corev1.ConditionFalse, "no network")
			default:
				nodeIs(w, corev1.ConditionTrue, "")
			}
		})
		n, err := c.WaitNode(t.Context(), "edge-1", func() { told++ }, isReady)
		if err != nil || !isReady(n) {
			t.Errorf("WaitNode: %v", err)
		}
		took := time.Since(start)
		if took > 3*time.Minute+3*maxPause || asked > 300 || told != asked {
			t.Errorf("waited for %s, asked %d times and told of %d", took, asked, told)
		}
	})
}

func TestWaitNodeEnds(t *testing.T) {
	tests := []struct {
		name    string
		handler http.HandlerFunc
		limit   time.Duration // 0 for none
		says    []string
	}{
		{
			"a Node that does not become Ready",
			func(w http.ResponseWriter, _ *http.Request) { nodeIs(w, "False", "no network") },
			time.Minute, []string{"no network", context.DeadlineExceeded.Error()},
		},
		{
			"a server that is ill", status(500), time.Minute,
			[]string{"cannot read Node edge-1", context.DeadlineExceeded.Error()},
		},
		{
			"no deadline at all", status(500), 0,
			[]string{"gave up after 1h0m0s"},
		},
		{
			"a server that does not answer",
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			5 * time.Second, []string{"cannot find Node edge-1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, start := t.Context(), time.Now()
				if tt.limit != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.limit)
					defer cancel()
				}
				_, err := inMemory(t, tt.handler).WaitNode(ctx, "edge-1", func() {}, isReady)
				if err == nil {
					t.Fatal("WaitNode ends well")
				}
				for _, says := range tt.says {
					if !strings.Contains(err.Error(), says) {
						t.Errorf("the error is %v, want a word on %q", err, says)
					}
				}
				limit := tt.limit
				if limit == 0 {
					limit = longestWait
				}
				if took := time.Since(start); took != limit {
					t.Errorf("took %s, want %s", took, limit)
				}
			})
		})
	}
}

// A drain pauses between its rounds, at another pace each time, and ends with its deadline.
func TestDrainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: []corev1.Pod{pod("web", "ReplicaSet")}, refusals: -1}
		pauses := make(map[time.Duration]bool)
		last := time.Now()
		c.onList = func(int) { pauses[time.Since(last)], last = true, time.Now() }
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		err := inMemory(t, c.ServeHTTP).Drain(ctx, "edge-1", DrainOptions{})
		if err == nil || !strings.Contains(err.Error(), "PodDisruptionBudget") {
			t.Errorf("Drain: %v", err)
		}
		if c.lists < 200 || c.lists > 600 || len(pauses) < 100 {
			t.Errorf("%d rounds with %d different pauses", c.lists, len(pauses))
		}
	})
}

func TestNodeMissing(t *testing.T) {
	missing := func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, 404, metav1.StatusReasonNotFound, `nodes "edge-1" not found`)
	}
	bare := func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		want    bool
		// unavailable is the expected result of Unavailable.
		unavailable bool
	}{
		"the API server's 404":     {missing, true, false},
		"a 404 of a load balancer": {bare, false, true},
		"401":                      {status(401), false, false},
		"403":                      {status(403), false, false},
		"429":                      {status(429), false, true},
		"500":                      {status(500), false, true},
		"503":                      {status(503), false, true},
	} {
		c := client(t, map[string]http.HandlerFunc{"GET /api/v1/nodes/edge-1": tt.handler})
		_, err := c.Node(t.Context(), "edge-1")
		if err == nil || NodeMissing(err) != tt.want {
			t.Errorf("%s: %v is missing: %v", name, err, NodeMissing(err))
		}
		if Unavailable(err) != tt.unavailable {
			t.Errorf("%s: %v is unavailable: %v", name, err, Unavailable(err))
		}
	}
	if NodeMissing(nil) || NodeMissing(errors.New("x")) {
		t.Error("NodeMissing of nil or of any error")
	}
	if Unavailable(nil) || !Unavailable(context.DeadlineExceeded) {
		t.Error("Unavailable of nil, or not of a timeout")
	}
}

// bodies records what is sent to a path.
func bodies(t *testing.T, on string, change func(*Client) error) (string, error) {
	t.Helper()
	var body atomic.Value
	body.Store("")
	c := client(t, map[string]http.HandlerFunc{on: func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body.Store(string(b))
		nodeIs(w, "", "")
	}})
	err := change(c)
	return body.Load().(string), err
}

func TestChangeNode(t *testing.T) {
	const node, create = "PATCH /api/v1/nodes/edge-1", "POST /api/v1/nodes"
	value := "oslo"
	ctx := t.Context()
	tests := []struct {
		name, on, want string
		change         func(*Client) error
	}{
		{
			"labels", node, `{"metadata":{"labels":{"old":null,"site":"oslo"}}}`,
			func(c *Client) error {
				return c.PatchLabels(ctx, "edge-1", map[string]*string{"site": &value, "old": nil})
			},
		},
		{
			"cordon", node, `{"annotations":{"aks-flex-node/cordoned":"true"}},` +
				`"spec":{"unschedulable":true}}`,
			func(c *Client) error { return c.Cordon(ctx, "edge-1", true) },
		},
		{
			"uncordon", node, `{"annotations":{"aks-flex-node/cordoned":null}},` +
				`"spec":{"unschedulable":null}}`,
			func(c *Client) error { return c.Cordon(ctx, "edge-1", false) },
		},
		{
			"create", create, `"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"]}`,
			func(c *Client) error {
				n := Node{Spec: corev1.NodeSpec{PodCIDRs: []string{"10.1.0.0/24"}}}
				return c.CreateNode(ctx, n)
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body, err := bodies(t, tt.on, tt.change)
			if err != nil || !strings.Contains(body, tt.want) {
				t.Errorf("sent %s, %v; want %s", body, err, tt.want)
			}
			if _, err := bodies(t, "GET /", tt.change); err == nil {
				t.Error("404 is no error")
			}
		})
	}
	exists := client(t, map[string]http.HandlerFunc{
		create: func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, 409, metav1.StatusReasonAlreadyExists, "exists")
		},
	})
	if err := exists.CreateNode(ctx, Node{}); err != nil {
		t.Errorf("a Node that exists already: %v", err)
	}
}

func TestDeleteNode(t *testing.T) {
	const on = "DELETE /api/v1/nodes/edge-1"
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		says    string
	}{
		"deleted": {func(w http.ResponseWriter, _ *http.Request) { answer(w, metav1.Status{}) }, ""},
		"gone":    {nil, ""},
		"forbidden": {func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, 403, metav1.StatusReasonForbidden, "no")
		}, "kubectl delete node edge-1"},
		"ill": {status(500), "kubectl delete node edge-1"},
	} {
		answers := map[string]http.HandlerFunc{}
		if tt.handler != nil {
			answers[on] = tt.handler
		}
		err := client(t, answers).DeleteNode(t.Context(), "edge-1")
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReady(t *testing.T) {
	if c := Ready(Node{}); c.Status != "" || c.Message == "" {
		t.Errorf("a Node without conditions is %v", c)
	}
}
