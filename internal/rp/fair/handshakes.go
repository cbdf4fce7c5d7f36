package fair

import (
	"crypto/tls"
	"net/http"
	"time"
)

// Handshakes limits concurrent TLS handshakes of a listener's connections (Connections.Listen). The
// others wait for their turn in order of arrival, and that wait does not count against them.
// Otherwise ten thousand agents that come back at once would share the processors: none would
// finish within a client's timeout, and present connections would wait for all of them.
type Handshakes struct {
	// patience limits the time of a client for the rest of its handshake from its turn on; 0 is no
	// limit. It has no turn while the server waits for it, neither before nor after.
	patience time.Duration
	turns    chan struct{} // one for each turn that is taken
}

// NewHandshakes limits the concurrent handshakes to atOnce.
func NewHandshakes(atOnce int, patience time.Duration) *Handshakes {
	return &Handshakes{patience: patience, turns: make(chan struct{}, atOnce)}
}

// Configure makes the connections that use a configuration take turns.
func (h *Handshakes) Configure(config *tls.Config) {
	chosen := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if err := h.begin(hello); err != nil || chosen == nil {
			return nil, err
		}
		return chosen(hello)
	}
}

// begin waits for the turn of a client whose first message has arrived.
func (h *Handshakes) begin(hello *tls.ClientHelloInfo) error {
	one, ok := hello.Conn.(*connection)
	if !ok {
		return nil
	}
	one.of.State(one, http.StateActive) // until the server waits for it again
	select {
	case h.turns <- struct{}{}:
		one.turn.Store(h)
	case <-hello.Context().Done():
		return hello.Context().Err()
	}
	var until time.Time
	if h.patience > 0 {
		until = time.Now().Add(h.patience)
	}
	err := one.SetDeadline(until)
	if err != nil { // it was closed meanwhile
		one.endTurn()
	}
	return err
}

// endTurn passes on a connection's turn, if it has one.
func (c *connection) endTurn() {
	if h := c.turn.Swap(nil); h != nil {
		<-h.turns
		c.of.State(c, http.StateIdle) // if it was not closed
	}
}

// Read implements net.Conn. A connection that waits for its client has no turn.
func (c *connection) Read(b []byte) (int, error) {
	if c.turn.Load() != nil {
		c.endTurn()
	}
	return c.Conn.Read(b)
}
