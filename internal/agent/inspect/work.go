package inspect

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// Work describes the work of the running service, including the state that only it has.
type Work struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Job is rest, reconcile, check, repair or leave, and Since its start; Doing has more detail.
	Job     string    `json:"job"`
	Since   time.Time `json:"since"`
	Doing   string    `json:"doing,omitempty"`
	Checked time.Time `json:"checked,omitzero"`
	// Polls describes the polls of the provider; nil if it is not polled.
	Polls *health.Polls `json:"polls,omitempty"`
	// Exhausted are things no longer repaired; Refused is why the configuration is not in force.
	Exhausted []string          `json:"exhausted,omitempty"`
	Refused   *health.Rejection `json:"refused,omitempty"`
	// Events are the latest things that drifted, or were repaired by us or by others.
	Events []DriftEvent `json:"events,omitempty"`
}

// DriftEvent records a change of one thing's drift.
type DriftEvent struct {
	At time.Time `json:"at"`
	// What is found, repaired, or gone, which means that this agent did not repair it.
	What     string `json:"what"`
	Key      string `json:"key"`
	Expected string `json:"expected,omitempty"`
	Found    string `json:"found,omitempty"`
}

// SocketFile is the socket on which the service reports its work. Only root can connect to it.
const SocketFile = saved.RunDir + "/agent.sock"

const askFor = 2 * time.Second // bounds the time of the service's answer

// Working asks the running service for its work; nil if none runs.
func Working(ctx context.Context, a *Env) *Work {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", a.Path(SocketFile))
	}
	transport := &http.Transport{DialContext: dial}
	defer transport.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/work", nil) // a valid URL
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var w Work
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&w) != nil {
		return nil
	}
	return &w
}

// WaitingFile is in RunDir: nothing waits after a reboot.
const WaitingFile = "waiting.json"

func volatile(a *Env) apply.Records { return apply.Records{Files: a.Reader, Dir: saved.RunDir} }

// ReadWaiting returns why a change waits; nil if none does.
func ReadWaiting(a *Env) *health.Waiting {
	var w health.Waiting
	found, err := volatile(a).Load(WaitingFile, &w)
	LogError(a.Log, "cannot read why a change waits", err)
	if !found || err != nil {
		return nil
	}
	return &w
}

// Pause returns the pause of a machine; nil for none.
func Pause(a *Env) *saved.Pause {
	p, err := a.Records().Pause(time.Now())
	LogError(a.Log, "cannot read whether the machine is paused", err)
	return p
}
