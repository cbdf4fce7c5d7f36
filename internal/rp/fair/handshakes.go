package fair

import (
	"crypto/tls"
	"net/http"
	"time"
)

// Handshakes are the TLS handshakes of a listener's connections (Connections.Listen). So many of
// them are worked on at once; the others wait for their turn in the order in which they came, and
// that time is not theirs. Else ten thousand agents that come back at once would share the
// processors: none of them would be ready within the time that a client has, and who has a
// connection already would wait for all of them.
type Handshakes struct {
	// patience limits the time of a client for the rest of its handshake from its turn on, 0 is
	// without limit. It has no turn while it is waited for, neither before nor after.
	patience time.Duration
	turns    chan struct{} // full of those who have one
}

// NewHandshakes has so many handshakes be worked on at once.
func NewHandshakes(atOnce int, patience time.Duration) *Handshakes {
	return &Handshakes{patience: patience, turns: make(chan struct{}, atOnce)}
}

// Configure has the connections that a configuration is used for take turns.
func (h *Handshakes) Configure(config *tls.Config) {
	chosen := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if err := h.begin(hello); err != nil || chosen == nil {
			return nil, err
		}
		return chosen(hello)
	}
}

// begin waits for the turn of a client whose first message is there.
func (h *Handshakes) begin(hello *tls.ClientHelloInfo) error {
	one, ok := hello.Conn.(*connection)
	if !ok {
		return nil
	}
	one.of.State(one, http.StateActive) // until it is waited for again
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

// endTurn gives a connection's turn to the next, if it has one.
func (c *connection) endTurn() {
	if h := c.turn.Swap(nil); h != nil {
		<-h.turns
		c.of.State(c, http.StateIdle) // if it was not closed
	}
}

// Read implements net.Conn. Who waits for its client has no turn.
func (c *connection) Read(b []byte) (int, error) {
	if c.turn.Load() != nil {
		c.endTurn()
	}
	return c.Conn.Read(b)
}
