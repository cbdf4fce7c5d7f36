package fair

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Connections limits the connections of a listener, and those from one address. If there is no
// room, a new one replaces the one that has been quiet for longest: idle between requests, or
// without a whole header yet. If none is quiet, the new one is closed.
type Connections struct {
	// Max limits the connections, PerAddress those of one address.
	Max, PerAddress int

	turns chan struct{} // one for each turn that is taken (TakeTurns)

	mu    sync.Mutex
	open  map[*connection]bool
	from  map[netip.Addr]int
	quiet list.List // of *connection, the longest first
}

// connection reports its end to its Connections.
type connection struct {
	net.Conn
	of   *Connections
	addr netip.Addr
	at   *list.Element // in quiet; nil if it is not
	turn atomic.Bool   // it has a turn
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	err := c.Conn.Close()
	c.endTurn() // no turn begins after that
	return err
}

// Listen returns a listener with the limits; the server must report its connections to State.
func (c *Connections) Listen(l net.Listener) net.Listener { return &bounded{l, c} }

type bounded struct {
	net.Listener
	of *Connections
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		accepted, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := b.of.admit(accepted); admitted != nil {
			return admitted, nil
		}
		_ = accepted.Close() // the client sees the end of the connection
	}
}

// admit admits a new connection; nil if there is no room for it.
func (c *Connections) admit(accepted net.Conn) net.Conn {
	from, _ := netip.ParseAddrPort(accepted.RemoteAddr().String())
	next := &connection{Conn: accepted, of: c, addr: from.Addr().Unmap()}
	c.mu.Lock()
	defer c.mu.Unlock()
	var may func(*connection) bool // be replaced
	switch {
	case c.PerAddress > 0 && c.from[next.addr] >= c.PerAddress:
		may = func(q *connection) bool { return q.addr == next.addr }
	case c.Max > 0 && len(c.open) >= c.Max:
		may = func(*connection) bool { return true }
	}
	if may != nil {
		victim := c.quietest(may)
		if victim == nil {
			return nil
		}
		c.remove(victim)
		_ = victim.Conn.Close() // its server sees that, and ends it
	}
	if c.open == nil {
		c.open, c.from = map[*connection]bool{}, map[netip.Addr]int{}
	}
	c.open[next] = true
	c.from[next.addr]++
	next.at = c.quiet.PushBack(next)
	return next
}

// quietest returns the connection that has been quiet for longest, of those that may is true for.
func (c *Connections) quietest(may func(*connection) bool) *connection {
	for e := c.quiet.Front(); e != nil; e = e.Next() {
		if q := e.Value.(*connection); may(q) {
			return q
		}
	}
	return nil
}

func (c *Connections) remove(gone *connection) {
	if !c.open[gone] {
		return
	}
	delete(c.open, gone)
	if c.from[gone.addr]--; c.from[gone.addr] == 0 {
		delete(c.from, gone.addr)
	}
	c.wake(gone)
}

func (c *Connections) wake(one *connection) {
	if one.at != nil {
		c.quiet.Remove(one.at)
		one.at = nil
	}
}

// State is http.Server's ConnState.
func (c *Connections) State(of net.Conn, state http.ConnState) {
	if secured, ok := of.(interface{ NetConn() net.Conn }); ok {
		of = secured.NetConn()
	}
	one, ok := of.(*connection)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case state == http.StateActive:
		c.wake(one)
	case state == http.StateIdle && c.open[one] && one.at == nil:
		one.at = c.quiet.PushBack(one)
	}
}

// Open returns the number of connections.
func (c *Connections) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// TakeTurns limits the concurrent TLS handshakes of the connections, which use a configuration, to
// atOnce. The others wait for their turn in order of arrival, and that wait does not count against
// them. Otherwise ten thousand agents that come back at once would share the processors: none would
// finish within a client's timeout, and present connections would wait for all of them. patience
// limits the time of a client for the rest of its handshake from its turn on. It has no turn while
// the server waits for it, neither before nor after.
func (c *Connections) TakeTurns(config *tls.Config, atOnce int, patience time.Duration) {
	c.turns = make(chan struct{}, atOnce)
	chosen := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if err := c.beginTurn(hello, patience); err != nil || chosen == nil {
			return nil, err
		}
		return chosen(hello)
	}
}

// beginTurn waits for the turn of a client whose first message has arrived.
func (c *Connections) beginTurn(hello *tls.ClientHelloInfo, patience time.Duration) error {
	one := hello.Conn.(*connection)
	c.State(one, http.StateActive) // until the server waits for it again
	select {
	case c.turns <- struct{}{}:
		one.turn.Store(true)
	case <-hello.Context().Done():
		return hello.Context().Err()
	}
	err := one.SetDeadline(time.Now().Add(patience))
	if err != nil { // it was closed meanwhile
		one.endTurn()
	}
	return err
}

// endTurn passes on a connection's turn, if it has one.
func (c *connection) endTurn() {
	if c.turn.Swap(false) {
		<-c.of.turns
		c.of.State(c, http.StateIdle) // if it was not closed
	}
}

// Read implements net.Conn. A connection that waits for its client has no turn.
func (c *connection) Read(b []byte) (int, error) {
	c.endTurn()
	return c.Conn.Read(b)
}
