package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// load sends the requests of agents, machines and owners to a fleet until it is stopped. Everything
// has to be answered as it is without a restart.
type load struct {
	*fleet
	ended   atomic.Bool
	running sync.WaitGroup
	polls   atomic.Int64
	others  atomic.Int64
	changed atomic.Int64
	mu      sync.Mutex
	urls    map[string]string // of nodes that machines are to join
}

const (
	agents  = 12
	joiners = 3
)

func agentID(i int) string { return fmt.Sprintf("aaaaaaaa-0000-0000-0000-%012d", i) }

// agentNode is the body of a node that joins with its identity.
func agentNode(i int, label string) string {
	return `{"properties":{"continuousMonitoring":true,"kubernetesAuth":{"useAzureAuth":true},
		"azureAuth":{"method":"servicePrincipal","servicePrincipal":{"clientId":"` + agentID(i) +
		`","clientSecret":"secret-` + fmt.Sprint(i) + `"}},
		"nodeConfig":{"labels":{"at":"` + label + `"}}}}`
}

func startLoad(f *fleet) *load {
	f.t.Helper()
	l := &load{fleet: f, urls: map[string]string{}}
	ops := f.caller("operator", false)
	for i := range agents {
		f.must(ops, 201, "PUT", nodeURL(fmt.Sprint("agent-", i)), agentNode(i, "first"))
	}
	for i := range joiners {
		name := fmt.Sprint("joiner-", i)
		text := f.must(ops, 201, "PUT", nodeURL(name)+"&configUrl=true", withToken)
		url := path(shownNode(f.t, text).Properties.ConfigURL)
		l.mu.Lock()
		l.urls[name] = url
		l.mu.Unlock()
		l.run(func() { l.read(f.caller("nobody", i%2 == 0), name) })
	}
	for i := range agents {
		l.run(func() { l.poll(f.caller(agentID(i), i%2 == 0), i) })
	}
	l.run(func() { l.write(f.caller("operator", true)) })
	l.run(func() { l.refresh(f.caller(agentID(0), false)) })
	return l
}

// run does something again and again.
func (l *load) run(do func()) { l.running.Go(do) }

// end stops the load, and tells how much there was.
func (l *load) end() {
	l.t.Helper()
	l.ended.Store(true)
	l.running.Wait()
	l.t.Logf("%d polls, %d of them changed; %d other requests", l.polls.Load(), l.changed.Load(),
		l.others.Load())
	if l.polls.Load() < 100 || l.changed.Load() < agents || l.others.Load() < 30 {
		l.t.Error("there was next to no load")
	}
}

// got asks, and is false when the answer is none of those that are right.
func (l *load) got(
	c caller, method, url, body string, right []int, headers ...string,
) (etag, text string, ok bool) {
	response, text, err := c.ask(method, url, body, headers...)
	if err != nil {
		l.t.Errorf("%s %.60s: %v", method, url, errors.Unwrap(err))
		return "", "", false
	}
	for _, status := range right {
		if response.StatusCode == status {
			return response.Header.Get("ETag"), text, true
		}
	}
	l.t.Errorf("%s %s: %d %.300s", method, url, response.StatusCode, text)
	return "", "", false
}

// poll is an agent: every second one waits for changes, every third closes its connections.
func (l *load) poll(c caller, i int) {
	url, etag := nodeURL(fmt.Sprint("agent-", i)), `"none"`
	for !l.ended.Load() {
		headers := []string{"If-None-Match: " + etag}
		if i%2 == 0 {
			headers = append(headers, "Prefer: wait=1")
		}
		next, text, ok := l.got(c, "GET", url, "", []int{200, 304}, headers...)
		if !ok {
			return
		}
		if l.polls.Add(1); text != "" {
			l.changed.Add(1)
		}
		if etag = next; i%3 == 0 {
			c.CloseIdleConnections()
		}
	}
}

// read is a machine that fetches its configuration.
func (l *load) read(c caller, name string) {
	for !l.ended.Load() {
		l.mu.Lock()
		url := l.urls[name]
		l.mu.Unlock()
		if _, _, ok := l.got(c, "GET", url, "", []int{200}); !ok {
			return
		}
		l.others.Add(1)
	}
}

// write is an owner who changes one node after the other.
func (l *load) write(c caller) {
	for n := 0; !l.ended.Load(); n++ {
		i := n % agents
		url := nodeURL(fmt.Sprint("agent-", i))
		if _, _, ok := l.got(c, "PUT", url, agentNode(i, fmt.Sprint("v", n)), []int{200}); !ok {
			return
		}
		l.others.Add(1)
	}
}

// refresh is a node that fetches its secrets.
func (l *load) refresh(c caller) {
	key := must(sealed.NewKey())
	body := string(must(json.Marshal(api.Refresh{PublicKey: key.Public()})))
	for !l.ended.Load() {
		_, text, ok := l.got(c, "POST", nodeURL("agent-0", "/refreshCredentials"), body, []int{200})
		if !ok {
			return
		}
		l.others.Add(1)
		if !strings.Contains(text, "ciphertext") {
			l.t.Errorf("%s", text)
			return
		}
	}
}

// listURLs has the machines use the present URLs.
func (l *load) listURLs() {
	l.t.Helper()
	ops := l.caller("operator", false)
	for i := range joiners {
		name := fmt.Sprint("joiner-", i)
		var u api.ConfigURL
		text := l.must(ops, 200, "POST", nodeURL(name, "/listConfigUrl"), "{}")
		must(0, json.Unmarshal([]byte(text), &u))
		l.mu.Lock()
		l.urls[name] = path(u.ConfigURL)
		l.mu.Unlock()
	}
}

// rounds returns how often something is done in a campaign.
func rounds() int {
	if os.Getenv("LONG") != "" {
		return 10
	}
	return 1
}

// Replicas that are restarted one after the other fail no poll, no configuration, no change.
func TestRollingRestart(t *testing.T) {
	f := newFleet(t)
	l := startLoad(f)
	for range rounds() {
		f.restartAll()
	}
	l.end()
}

// The key is replaced in the order that `flexnode-rp keys` tells, while everything is asked for:
// nothing is unreadable, no URL dead, at any time.
func TestKeyRotation(t *testing.T) {
	f := newFleet(t)
	l := startLoad(f)
	file := f.settings.KeysFile
	for range rounds() {
		must(seal.Add(file, seal.RootFile(file), time.Now()))
		f.restartAll()
		ring := must(seal.Promote(file))
		f.restartAll()
		st := store.New(f.memory.Another())
		if n := must(credential.Rewrap(context.Background(), st, ring)); n == 0 {
			t.Error("nothing was sealed with the old key")
		}
		l.listURLs() // a day later all that the old key has signed have ended
		must(seal.Drop(file, must(credential.Boxes(context.Background(), st))))
		f.restartAll()
	}
	l.end()
}
