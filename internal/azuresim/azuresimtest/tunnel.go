package azuresimtest

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
)

// Tunnel is an HTTP proxy that supports only CONNECT, for programs that must reach Azure through a
// proxy.
type Tunnel struct {
	*httptest.Server
	opened atomic.Int64
}

// NewTunnel starts a proxy. The caller closes it.
func NewTunnel() *Tunnel {
	t := &Tunnel{}
	t.Server = httptest.NewServer(http.HandlerFunc(t.connect))
	return t
}

// Opened returns the number of connections made through the proxy.
func (t *Tunnel) Opened() int { return int(t.opened.Load()) }

func (t *Tunnel) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
		return
	}
	target, err := net.Dial("tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer target.Close()
	t.opened.Add(1)
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{target, client}, {client, target}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}
