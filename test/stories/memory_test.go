package stories

import (
	"context"
	"net"
	"sync"
	"time"
)

// memory is a network in memory: connections to the only address of the stories' API server. Under
// testing/synctest its waits let time pass, unlike those of real sockets.
type memory struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once

	mu   sync.Mutex
	open []*buffered
}

// address is the address of every story's API server.
const address = "127.0.0.1:6443"

func newMemory() *memory {
	return &memory{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (m *memory) Accept() (net.Conn, error) {
	select {
	case conn := <-m.accepted:
		return conn, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It closes every connection: one that a client was still opening
// when its request was cancelled would otherwise remain open.
func (m *memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, conn := range m.open {
		conn.Close()
	}
	return nil
}

// track records a connection to close with the listener.
func (m *memory) track(conn *buffered) *buffered {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = append(m.open, conn)
	return conn
}

// Addr implements net.Listener.
func (m *memory) Addr() net.Addr { return addr(address) }

// dial connects to the listener, like a net.Dialer.
func (m *memory) dial(ctx context.Context) (net.Conn, error) {
	client, end := net.Pipe()
	server := m.track(buffer(end))
	server.caller = ctx.Value(callerKey{})
	select {
	case m.accepted <- server:
		return client, nil
	case <-m.closed:
		_ = server.Close() // no caller has it
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: m.Addr(), Err: net.ErrClosed}
	case <-ctx.Done():
		_ = server.Close()
		return nil, ctx.Err()
	}
}

// buffered is a connection that accepts writes at once, like a socket: a server in the middle of
// its handshake learns that the client does not trust it.
type buffered struct {
	net.Conn
	// caller is the process that opened it, if it can be killed; otherwise nil.
	caller  any
	mu      sync.Mutex
	more    *sync.Cond
	pending []byte
	closed  bool
	err     error
}

func buffer(conn net.Conn) *buffered {
	b := &buffered{Conn: conn}
	b.more = sync.NewCond(&b.mu)
	go b.send()
	return b
}

// send forwards written data until the connection is closed.
func (b *buffered) send() {
	defer b.Conn.Close()
	for {
		b.mu.Lock()
		for len(b.pending) == 0 && !b.closed {
			b.more.Wait()
		}
		next := b.pending
		b.pending = nil
		b.mu.Unlock()
		if len(next) == 0 {
			return
		}
		if _, err := b.Conn.Write(next); err != nil {
			b.mu.Lock()
			b.err = err
			b.mu.Unlock()
			return
		}
	}
}

// Write implements net.Conn.
func (b *buffered) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	b.pending = append(b.pending, p...)
	b.more.Signal()
	return len(p), nil
}

// Close implements net.Conn: earlier writes are still sent.
func (b *buffered) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.more.Signal()
	return b.SetReadDeadline(time.Now())
}

type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }
