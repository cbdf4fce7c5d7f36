package service

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
)

// flaky is a listener that cannot accept at first.
type flaky struct {
	failed bool
	conns  chan net.Conn
	closed chan struct{}
}

func (l *flaky) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, errors.New("too many open files")
	}
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *flaky) Close() error   { close(l.closed); return nil }
func (l *flaky) Addr() net.Addr { return &net.UnixAddr{} }

// Who could not accept a connection answers the next one.
func TestAnswersAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &flaky{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := answer(l, func(string) (string, []byte) { return "text/plain", []byte("x") })
		defer server.close()
		here, there := net.Pipe()
		defer here.Close()
		l.conns <- there
		request, err := http.NewRequest(http.MethodGet, "http://agent/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := request.Write(here); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(here), request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("it answers %s", response.Status)
		}
	})
}
