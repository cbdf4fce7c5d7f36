package load

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// Fleet is a number of agents, each with a connection that stays open.
type Fleet struct {
	target Target
	agents []*connection

	answered, throttled atomic.Int64
}

// opening is the number of agents that connect at the same time.
const opening = 64

// Open connects agents and sends a request of each.
func (t Target) Open(ctx context.Context, agents int) (*Fleet, error) {
	f := &Fleet{target: t}
	for range agents {
		f.agents = append(f.agents, &connection{config: t.TLS})
	}
	var next atomic.Int64
	err := each(min(opening, agents), func(int) error {
		for n := int(next.Add(1)) - 1; n < agents; n = int(next.Add(1)) - 1 {
			if err := f.ask(ctx, n, n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close closes the connections.
func (f *Fleet) Close() {
	for _, c := range f.agents {
		c.close()
	}
}

// Agents returns the number of agents.
func (f *Fleet) Agents() int { return len(f.agents) }

// Answered returns the number of requests of Open and Pace with the wanted status, and with 429.
func (f *Fleet) Answered() (wanted, throttled int) {
	return int(f.answered.Load()), int(f.throttled.Load())
}

// ask sends the n-th request as an agent.
func (f *Fleet) ask(ctx context.Context, agent, n int) error {
	r, err := f.target.Request(ctx, n)
	if err != nil {
		return err
	}
	status, header, err := f.Do(agent, r)
	if err != nil {
		return err
	}
	switch err := f.target.judge(r, status, header); {
	case err == nil:
		f.answered.Add(1)
	case errors.Is(err, errThrottled):
		f.throttled.Add(1)
	default:
		return err
	}
	return nil
}

// Do sends a request as an agent and returns the response's status and header.
func (f *Fleet) Do(agent int, r *http.Request) (int, http.Header, error) {
	return f.agents[agent].do(r)
}

// Flood lets each agent send one request after another and returns the number of responses per
// second. The first quarter of the time is not counted.
func (f *Fleet) Flood(ctx context.Context, during time.Duration) (float64, error) {
	return flood(len(f.agents), during, func(agent, n int) error {
		return f.ask(ctx, agent, n)
	})
}

// Pace sends requests at a fixed rate, whether or not the server keeps up, and returns the 99th
// percentile of the time from a request's due time to its response.
func (f *Fleet) Pace(
	ctx context.Context, perSecond float64, during time.Duration,
) (time.Duration, error) {
	agents := len(f.agents)
	began := time.Now().Add(100 * time.Millisecond)
	interval := time.Duration(float64(agents) / perSecond * float64(time.Second))
	took := make([][]time.Duration, agents)
	err := each(agents, func(agent int) error {
		first := interval * time.Duration(agent) / time.Duration(agents)
		for n := 0; ; n++ {
			due := began.Add(interval*time.Duration(n) + first)
			if due.After(began.Add(during)) {
				return nil
			}
			time.Sleep(time.Until(due))
			if err := f.ask(ctx, agent, agent+n*agents); err != nil {
				return err
			}
			took[agent] = append(took[agent], time.Since(due))
		}
	})
	all := slices.Concat(took...)
	if len(all) == 0 {
		return 0, errors.Join(err, errors.New("nothing was measured"))
	}
	slices.Sort(all)
	return all[len(all)*99/100], err
}
