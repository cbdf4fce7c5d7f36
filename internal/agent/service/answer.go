package service

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
)

// The bounds of a request: how long it and its answer may take, and how many bytes are read of it.
// acceptPause is the pause after a connection that could not be accepted.
const (
	answerWithin = 5 * time.Second
	maxRequest   = 8 << 10
	acceptPause  = time.Second
)

// answering answers GET requests on a listener, one for each connection and one after the other:
// the few clients are on this machine, and http.Server would be a third of a megabyte of the
// program.
type answering struct {
	listener net.Listener
	// answer returns what is at a path; no kind is nothing.
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

// one answers on a connection. A client that has gone misses the answer.
func (a *answering) one(conn net.Conn) {
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(answerWithin)) != nil {
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
		if resp.StatusCode = http.StatusNotFound; kind != "" {
			resp.StatusCode = http.StatusOK
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

// Tell answers at the socket until ctx ends: /work is the Work as JSON, /metrics the metrics.
func (l *Live) Tell(ctx context.Context, a *change.Agent) error {
	socket := a.Path(inspect.SocketFile)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the old socket: %w", err)
	}
	listener, err := net.Listen("unix", socket) // in a directory of mode 0700
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	server := answer(listener, func(path string) (kind string, body []byte) {
		if path != "/work" {
			return l.metricsAt(path)
		}
		work := l.Work()
		if work.Polls != nil {
			polls := *work.Polls
			polls.Received = a.Records().BundleResource().ConfigVersion
			polls.Applied = inspect.AppliedResource(&a.Env).ConfigVersion
			if bundle, err := a.Records().Bundle(); err == nil && bundle != nil {
				proof, _, _ := follow.Verify(bundle, config.JoiningOf(bundle).Root)
				polls.Signed, polls.Certified = proof.Signed, proof.Until
			}
			work.Polls = &polls
		}
		body, err := json.Marshal(work)
		if err != nil {
			return "", nil
		}
		return "application/json", body
	})
	defer server.close()
	if err := os.Chmod(socket, 0o600); err != nil {
		return fmt.Errorf("cannot protect %s: %w", socket, err)
	}
	<-ctx.Done()
	return nil
}
