package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// gates control connections by the names of their links.
type gates struct {
	mu      sync.Mutex
	changed chan struct{} // closed when states change
	states  LinkStates
	open    map[net.Conn]string // connections by link
}

// errCut is the error of a connection on a cut link.
var errCut = errors.New("the link is cut")

func newGates() *gates {
	return &gates{changed: make(chan struct{}), open: map[net.Conn]string{}}
}

// set changes the states of links and closes connections on cut ones.
func (g *gates) set(states LinkStates) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.states = states
	close(g.changed)
	g.changed = make(chan struct{})
	for c, link := range g.open {
		if slices.Contains(states.Cut, link) {
			_ = c.Close()
		}
	}
}

// member returns the name of a member that was added later, by its id; "" if unknown.
func (g *gates) member(id string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.states.Members[id]
}

// pass waits until a link is open. It returns an error if the link is cut or ctx ends.
func (g *gates) pass(ctx context.Context, link string) error {
	for {
		g.mu.Lock()
		states, changed := g.states, g.changed
		g.mu.Unlock()
		if slices.Contains(states.Cut, link) {
			return errCut
		}
		if !slices.Contains(states.Stalled, link) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// listen forwards connections on a loopback port to another port until ctx ends. of returns a
// connection's link and the bytes that it had to read to find it.
func (g *gates) listen(
	ctx context.Context, port, to int, of func(net.Conn) (string, []byte, error),
) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("cannot make a link: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if link, head, err := of(c); err == nil {
					g.carry(ctx, link, c, head, to)
				}
			}()
		}
	}()
	return nil
}

// carry forwards a connection until one side ends it.
func (g *gates) carry(ctx context.Context, link string, from net.Conn, head []byte, to int) {
	if g.pass(ctx, link) != nil {
		return
	}
	var dialer net.Dialer
	target, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", to))
	if err != nil {
		return
	}
	if _, err := target.Write(head); err != nil {
		_ = target.Close()
		return
	}
	g.join(ctx, link, from, target)
}

// join copies between two connections until one side or the link ends, and closes both.
func (g *gates) join(ctx context.Context, link string, from, target net.Conn) {
	defer target.Close()
	g.mu.Lock()
	g.open[from], g.open[target] = link, link
	cut := slices.Contains(g.states.Cut, link)
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.open, from)
		delete(g.open, target)
		g.mu.Unlock()
	}()
	if cut {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		g.copy(ctx, link, from, target)
	}()
	g.copy(ctx, link, target, from)
	<-back
}

// copy copies in one direction while the link is open, then closes both connections.
func (g *gates) copy(ctx context.Context, link string, to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if g.pass(ctx, link) != nil {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
