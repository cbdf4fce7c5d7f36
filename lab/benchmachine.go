package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// benchMachine is the machine of a stored node, with its own key. It is safe for concurrent use.
type benchMachine struct {
	key  *machinekey.Key
	said machinekey.Claims
	path string // of the node

	mu   sync.Mutex
	poll string // the token for polls
	made time.Time
}

// pollsFor is the lifetime of a poll token, as in agents.
const pollsFor = 4 * time.Minute

// newBenchMachine returns the machine of a node with a uid, with a new key.
func newBenchMachine(path, uid string) (*benchMachine, error) {
	return &benchMachine{key: machinekey.New(), path: path, said: machinekey.Claims{
		UID: uid, Audience: ProviderURL, Boot: machinekey.NewBoot(),
	}}, nil
}

// signPoll adds the poll token to a request.
func (m *benchMachine) signPoll(r *http.Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.made) >= pollsFor {
		m.poll, m.made = m.key.Sign(m.said, now), now
	}
	r.Header.Set("Authorization", machinekey.Scheme+" "+m.poll)
	return nil
}

// token returns a token for one action with a body.
func (m *benchMachine) token(action string, body []byte) (string, error) {
	said := m.said
	said.Request = machinekey.RequestOf(http.MethodPost, m.path+"/"+action, body)
	return m.key.Sign(said, time.Now()), nil
}

// register registers the key with a token of the node's identity. It waits while the provider
// throttles it: registrations are limited by the number of machines.
func (m *benchMachine) register(
	ctx context.Context, client *http.Client, server, identity string,
) error {
	const action = "registerKey"
	token, err := m.token(action, nil)
	if err != nil {
		return err
	}
	body, err := json.Marshal(api.RegisterKey{MachineToken: token})
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	url := server + m.path + "/" + action + "?api-version=" + ProviderAPI
	for {
		response, text, err := request(ctx, client, http.MethodPost, url, identity, body)
		switch {
		case err != nil:
			return err
		case response.StatusCode == http.StatusNoContent:
			return nil
		case response.StatusCode != http.StatusTooManyRequests:
			return fmt.Errorf("cannot register a machine's key: %s: %s", response.Status, text)
		case !wait.Sleep(ctx, wait.Jitter(time.Second)):
			return ctx.Err()
		}
	}
}
