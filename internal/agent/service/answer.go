package service

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// answerMost bounds a request and its answer.
const answerMost = 5 * time.Second

// acceptPause is the pause before another connection is accepted when that has failed.
const acceptPause = time.Second

// maxRequest is the most that is read of a request, in bytes.
const maxRequest = 8 << 10

// answering answers GET requests on a listener, one for each connection and one after the other:
// the few askers are on this machine, and http.Server would be a third of a megabyte of the
// program.
type answering struct {
	listener net.Listener
	// answer is what is at a path; no kind is nothing.
	answer func(path string) (kind string, body []byte)
	loop   sync.WaitGroup
}

// answer begins to answer; close ends it.
func answer(l net.Listener, answer func(path string) (kind string, body []byte)) *answering {
	a := &answering{listener: l, answer: answer}
	a.loop.Go(a.run)
	return a
}

func (a *answering) run() {
	for {
		conn, err := a.listener.Accept()
		switch {
		case err == nil:
			a.one(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default: // there are too many open files, for now
			time.Sleep(acceptPause)
		}
	}
}

// one answers on a connection. Who has gone misses the answer.
func (a *answering) one(conn net.Conn) {
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(answerMost)) != nil {
		return
	}
	req, err := http.ReadRequest(bufio.NewReader(io.LimitReader(conn, maxRequest)))
	if err != nil {
		return
	}
	resp := http.Response{
		StatusCode: http.StatusMethodNotAllowed, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Request: req, Header: http.Header{},
	}
	if req.Method == http.MethodGet {
		kind, body := a.answer(req.URL.Path)
		if resp.StatusCode = http.StatusOK; kind == "" {
			resp.StatusCode = http.StatusNotFound
		}
		if kind != "" {
			resp.Header.Set("Content-Type", kind)
		}
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	_ = resp.Write(conn)
}

func (a *answering) close() {
	a.listener.Close()
	a.loop.Wait()
}
