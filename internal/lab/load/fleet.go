package load

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// Fleet is agents with a connection each, which are kept open.
type Fleet struct {
	target Target
	agents []*http.Client

	answered, throttled atomic.Int64
}

// opening is how many agents connect at once.
const opening = 64

// Open has so many agents connect and ask once.
func (t Target) Open(ctx context.Context, agents int) (*Fleet, error) {
	f := &Fleet{target: t}
	for range agents {
		f.agents = append(f.agents, t.client())
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

// Close ends the connections.
func (f *Fleet) Close() {
	for _, c := range f.agents {
		c.CloseIdleConnections()
	}
}

// Agents is how many there are.
func (f *Fleet) Agents() int { return len(f.agents) }

// Answered is how many requests of Open and Pace were answered as wanted, and how many with 429.
func (f *Fleet) Answered() (wanted, throttled int) {
	return int(f.answered.Load()), int(f.throttled.Load())
}

// ask has an agent send the n-th request.
func (f *Fleet) ask(ctx context.Context, agent, n int) error {
	switch err := f.target.ask(ctx, f.agents[agent], n); {
	case err == nil:
		f.answered.Add(1)
	case errors.Is(err, errThrottled):
		f.throttled.Add(1)
	default:
		return err
	}
	return nil
}

// Do sends a request of an agent and returns the answer's status and header.
func (f *Fleet) Do(agent int, r *http.Request) (int, http.Header, error) {
	response, err := f.agents[agent].Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header, err
}

// Pace has the agents send so many requests in a second, whether the server keeps up or not, and
// returns the 99th percentile of the time from when a request should have been sent to its answer.
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
