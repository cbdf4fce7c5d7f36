package service

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// arrivals are the connections whose first request has not come yet. A server that is shut down
// drops that request, so it is waited for.
type arrivals struct{ connections sync.Map }

// see is for http.Server.ConnState.
func (a *arrivals) see(c net.Conn, state http.ConnState) {
	if state == http.StateNew {
		a.connections.Store(c, struct{}{})
		return
	}
	a.connections.Delete(c)
}

const (
	// arrivalTimeout limits the time of a first request; a client that only opens a connection
	// keeps no other out.
	arrivalTimeout = 5 * time.Second
	arrivalPause   = 20 * time.Millisecond
)

// wait waits until all who have connected have been answered, or have had their time.
func (a *arrivals) wait() {
	ctx, cancel := context.WithTimeout(context.Background(), arrivalTimeout)
	defer cancel()
	for some := true; some && ctx.Err() == nil; {
		store.Pause(ctx, arrivalPause) // also for the handler of the last one to begin
		some = false
		a.connections.Range(func(any, any) bool { some = true; return false })
	}
}
