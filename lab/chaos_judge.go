package lab

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// judge waits until the provider has caught up, reads every node and checks the history.
func (c *chaosRun) judge(ctx context.Context) (ChaosResult, error) {
	result := ChaosResult{Operations: len(c.history) + c.others, Faults: c.faults,
		Leases: c.leases, Replaced: c.replaced}
	for _, op := range c.history {
		if !op.Output.(outcome).known {
			result.Unknown++
		}
	}
	healed := time.Now()
	var last *findings
	for {
		found, err := c.inspect(ctx)
		if err == nil {
			last = found
		}
		late := time.Since(healed) > catchUp
		if err == nil && found.none() || late {
			if last == nil {
				return result, fmt.Errorf("cannot inspect the provider: %w", err)
			}
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	result.CaughtUp = time.Since(healed)
	result.Findings, result.URLs, result.Alive = last.counts, len(c.urls), last.alive
	for _, example := range last.examples {
		c.blame("%s", example)
	}
	c.readAll(ctx)
	result.Linearizable = c.linearizable()
	c.judgeFleet(&result)
	result.Wrong = c.wrong
	return result, nil
}

// readAll reads every node: a lost write shows as a read that no order explains.
func (c *chaosRun) readAll(ctx context.Context) {
	for i, n := range c.nodes {
		s := step{node: n.name, verb: getOp}
		called := time.Since(c.began)
		out, _ := c.do(ctx, n, i%c.lab.Replicas, s)
		if !out.known {
			c.blame("%s cannot be read", n.name)
			continue
		}
		c.keep(chaosClients+1, s, out, called)
	}
}

// linearizable checks the history of each node.
func (c *chaosRun) linearizable() bool {
	good := true
	model := chaosModel()
	for _, part := range model.Partition(c.history) {
		if again := toldAgain(part); again != "" {
			good = false
			c.blame("the URL of credential %s was told again after another one of its node", again)
		}
		verdict := porcupine.CheckOperationsTimeout(model, part, time.Minute)
		if verdict == porcupine.Ok {
			continue
		}
		good = false
		_, info := porcupine.CheckOperationsVerbose(model, part, time.Minute)
		node := part[0].Input.(step).node
		path, err := c.keepHistory(node, part, info)
		if err != nil {
			path = err.Error()
		}
		c.blame("the history of %s (%d operations, in %s) is judged %s", node, len(part), path, verdict)
	}
	return good
}

// toldAgain returns a credential whose URL was handed out, then another's, then its own again, each
// after the previous response; "" if none. A request for a URL must get the current or a new one.
// The model does not check this, since it does not keep old credentials.
func toldAgain(history []porcupine.Operation) string {
	first := map[string]int64{} // when a credential was first known
	var told []porcupine.Operation
	for _, op := range history {
		if key := op.Output.(outcome).credential; key != "" {
			if at, known := first[key]; !known || op.Return < at {
				first[key] = op.Return
			}
			told = append(told, op)
		}
	}
	for _, last := range told {
		key := last.Output.(outcome).credential
		for _, between := range told {
			if between.Output.(outcome).credential != key && first[key] < between.Call &&
				between.Return < last.Call {
				return key
			}
		}
	}
	return ""
}

// head returns the status of a HEAD request for a URL.
func (c *chaosRun) head(ctx context.Context, replica int, uri string) (int, error) {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodHead, ReplicaURL(replica)+uri, nil)
		if err != nil {
			return 0, err
		}
		response, err := c.client.Do(r)
		if err != nil {
			return 0, err
		}
		err = response.Body.Close()
		if response.StatusCode != http.StatusTooManyRequests || err != nil {
			return response.StatusCode, err
		}
		if !wait.Sleep(ctx, time.Second) { // all URLs are requested from one address
			return 0, ctx.Err()
		}
	}
}
