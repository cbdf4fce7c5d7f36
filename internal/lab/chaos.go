package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/Azure/AKSFlexNode/internal/lab/component"
)

// Chaos is what came of working on a provider whose replicas and store members are killed and
// paused.
type Chaos struct {
	Operations, Unknown, Faults int
	// Linearizable tells whether the history has an order that explains every answer; Wrong says where
	// it has not.
	Linearizable bool
	Wrong        []string
}

// The names of the nodes that are worked on, and by how many at once.
const (
	chaosNodes   = 8
	chaosClients = 12
	// opTimeout is after how long a client gives an operation up, without knowing whether it happened.
	opTimeout = 5 * time.Second
)

// step is one operation on one node, as porcupine sees it.
type step struct {
	node, verb string
	value      int
}

// outcome is what was answered.
type outcome struct {
	known  bool
	exists bool // GET, DELETE
	value  int  // GET
}

// register is the model: a node is there with a value, or not.
type register struct {
	exists bool
	value  int
}

func chaosModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byNode := map[string][]porcupine.Operation{}
			for _, op := range history {
				byNode[op.Input.(step).node] = append(byNode[op.Input.(step).node], op)
			}
			var parts [][]porcupine.Operation
			for _, part := range byNode {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return register{} },
		Step: func(state, input, output any) (bool, any) {
			r, in, out := state.(register), input.(step), output.(outcome)
			switch in.verb {
			case http.MethodPut:
				return true, register{true, in.value}
			case http.MethodDelete:
				return !out.known || out.exists == r.exists, register{}
			}
			return !out.known || out.exists == r.exists && (!r.exists || out.value == r.value), r
		},
	}
}

// RunChaos works on nodes through all replicas for a while, during which replicas and members of
// the store are killed, paused and started again.
func (l *Lab) RunChaos(ctx context.Context, during time.Duration) (Chaos, error) {
	dirs, err := l.build(ctx, ofSystem)
	if err != nil {
		return Chaos{}, err
	}
	who, err := l.Azure()
	if err != nil {
		return Chaos{}, err
	}
	token, err := l.AccessToken(ctx, who.Operator)
	if err != nil {
		return Chaos{}, err
	}
	client, err := l.HTTPClient()
	if err != nil {
		return Chaos{}, err
	}
	client.Timeout = opTimeout
	defer client.CloseIdleConnections()
	run := &chaosRun{lab: l, client: client, token: token, began: time.Now()}
	working, stop := context.WithTimeout(ctx, during)
	defer stop()
	var wg sync.WaitGroup
	for i := range chaosClients {
		wg.Go(func() { run.work(working, i) })
	}
	faults, err := l.harm(working, dirs)
	wg.Wait()
	if err != nil {
		return Chaos{}, err
	}
	result := run.judge(ctx)
	result.Faults = faults
	return result, nil
}

// chaosRun is a history in the making.
type chaosRun struct {
	lab    *Lab
	client *http.Client
	token  string
	began  time.Time

	mu      sync.Mutex
	history []porcupine.Operation
}

// work sends one operation after the other until ctx ends.
func (c *chaosRun) work(ctx context.Context, id int) {
	random := rand.New(rand.NewPCG(uint64(id), uint64(c.began.UnixNano())))
	for n := 0; ctx.Err() == nil; n++ {
		s := step{node: fmt.Sprintf("chaos-%d", random.IntN(chaosNodes)), verb: http.MethodGet,
			value: id*1_000_000 + n}
		switch random.IntN(10) {
		case 0, 1, 2, 3:
			s.verb = http.MethodPut
		case 4:
			s.verb = http.MethodDelete
		}
		called := time.Since(c.began)
		out := c.do(context.WithoutCancel(ctx), random.IntN(c.lab.Replicas), s)
		op := porcupine.Operation{ClientId: id, Input: s, Call: called.Nanoseconds(), Output: out,
			Return: time.Since(c.began).Nanoseconds()}
		if !out.known {
			if s.verb == http.MethodGet { // it says nothing
				continue
			}
			op.Return = time.Duration(1<<62 - 1).Nanoseconds() // it may happen any time from now on
		}
		c.mu.Lock()
		c.history = append(c.history, op)
		c.mu.Unlock()
	}
}

// do sends one operation; what was not answered, or with 5xx or 409, is not known to have happened.
func (c *chaosRun) do(ctx context.Context, replica int, s step) outcome {
	var body io.Reader
	if s.verb == http.MethodPut {
		labels := object{"value": strconv.Itoa(s.value)}
		// it always encodes
		text, _ := json.Marshal(object{"properties": object{"nodeConfig": object{"labels": labels}}})
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, s.verb,
		ProviderURL(replica)+ClusterID+"/flexNodeConfig/"+s.node+"?api-version="+ProviderAPI, body)
	if err != nil {
		return outcome{}
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(r)
	if err != nil {
		time.Sleep(50 * time.Millisecond) // a replica that is down
		return outcome{}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return outcome{}
	}
	switch response.StatusCode {
	case http.StatusOK, http.StatusCreated:
		var shown struct {
			Properties struct {
				NodeConfig struct{ Labels struct{ Value string } }
			}
		}
		if s.verb == http.MethodGet && json.Unmarshal(text, &shown) != nil {
			return outcome{}
		}
		// a PUT's answer is not looked at
		value, _ := strconv.Atoi(shown.Properties.NodeConfig.Labels.Value)
		return outcome{known: true, exists: true, value: value}
	case http.StatusNoContent:
		return outcome{known: true}
	case http.StatusNotFound:
		return outcome{known: strings.Contains(string(text), `"ResourceNotFound"`)}
	}
	return outcome{}
}

// harm kills and pauses replicas and members, one at a time, now and then two members, and brings
// them back; it returns how often.
func (l *Lab) harm(ctx context.Context, dirs programs) (int, error) {
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 7))
	faults := 0
	for {
		select {
		case <-ctx.Done():
			return faults, nil
		case <-time.After(time.Duration(1500+random.IntN(3000)) * time.Millisecond):
		}
		faults++
		var err error
		switch random.IntN(5) {
		case 0:
			err = l.pause(random, fmt.Sprintf("flexnode-rp-%d", random.IntN(l.Replicas)))
		case 1:
			err = l.pause(random, fmt.Sprintf("rp-etcd-%d", random.IntN(l.Members)))
		case 2: // without a quorum
			first := random.IntN(l.Members)
			err = l.pause(random, fmt.Sprintf("rp-etcd-%d", first),
				fmt.Sprintf("rp-etcd-%d", (first+1)%l.Members))
		case 3:
			i := random.IntN(l.Replicas)
			if err = l.killHard(fmt.Sprintf("flexnode-rp-%d", i)); err == nil {
				err = l.StartReplica(context.WithoutCancel(ctx), i)
			}
		case 4:
			i := random.IntN(l.Members)
			name := fmt.Sprintf("rp-etcd-%d", i)
			if err = l.killHard(name); err == nil {
				time.Sleep(time.Second)
				err = l.background(name, filepath.Join(dirs[component.Etcd], "etcd"), l.memberFlags(i)...)
			}
		}
		if err != nil {
			return faults, err
		}
	}
}

func (l *Lab) pause(random *rand.Rand, names ...string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, syscall.Kill(l.ProcessID(name), syscall.SIGSTOP))
	}
	time.Sleep(time.Duration(500+random.IntN(4000)) * time.Millisecond)
	for _, name := range names {
		errs = append(errs, syscall.Kill(l.ProcessID(name), syscall.SIGCONT))
	}
	return errors.Join(errs...)
}

func (l *Lab) killHard(name string) error {
	if err := syscall.Kill(l.ProcessID(name), syscall.SIGKILL); err != nil {
		return fmt.Errorf("cannot kill %s: %w", name, err)
	}
	for l.ProcessID(name) != 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// judge checks the history, and reads every node once more.
func (c *chaosRun) judge(ctx context.Context) Chaos {
	result := Chaos{Operations: len(c.history)}
	for _, op := range c.history {
		if !op.Output.(outcome).known {
			result.Unknown++
		}
	}
	// what is there at the end is part of the history: a lost write shows as one that no order
	// explains
	for i := range chaosNodes {
		s := step{node: fmt.Sprintf("chaos-%d", i), verb: http.MethodGet}
		called := time.Since(c.began)
		out := c.do(ctx, i%c.lab.Replicas, s)
		if !out.known {
			result.Wrong = append(result.Wrong, s.node+" cannot be read")
			continue
		}
		c.history = append(c.history, porcupine.Operation{ClientId: chaosClients, Input: s,
			Call: called.Nanoseconds(), Output: out, Return: time.Since(c.began).Nanoseconds()})
	}
	model := chaosModel()
	result.Linearizable = true
	for _, part := range model.Partition(c.history) {
		if verdict := porcupine.CheckOperationsTimeout(model, part,
			time.Minute); verdict != porcupine.Ok {
			result.Linearizable = false
			result.Wrong = append(result.Wrong, fmt.Sprintf("the history of %s (%d operations) is judged %s",
				part[0].Input.(step).node, len(part), verdict))
		}
	}
	return result
}
