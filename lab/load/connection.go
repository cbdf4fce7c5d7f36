package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

// connection is an agent's HTTP/1.1 connection for one request at a time. It has no goroutine and
// uses little memory: 10,000 of them share the machine with the server that they measure.
type connection struct {
	config *tls.Config
	conn   *tls.Conn
	in     *bufio.Reader
	out    *bufio.Writer
}

// lineSize is the max length of a response header's line, and of a request that is sent in one
// piece.
const lineSize = 2 << 10

// do sends a request, discards the response's body and returns its status and header.
func (c *connection) do(r *http.Request) (int, http.Header, error) {
	if c.conn == nil {
		if err := c.open(r); err != nil {
			return 0, nil, err
		}
	}
	status, header, err := c.exchange(r)
	if err != nil {
		c.close()
		return 0, nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err)
	}
	return status, header, nil
}

func (c *connection) open(r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	dialer := &tls.Dialer{Config: c.config}
	conn, err := dialer.DialContext(ctx, "tcp", r.URL.Host)
	if err != nil {
		return err
	}
	c.conn = conn.(*tls.Conn)
	c.in, c.out = bufio.NewReaderSize(conn, lineSize), bufio.NewWriterSize(conn, lineSize)
	return nil
}

func (c *connection) exchange(r *http.Request) (int, http.Header, error) {
	conn := c.conn
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, nil, err
	}
	defer context.AfterFunc(r.Context(), func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := r.Write(c.out); err != nil {
		return 0, nil, err
	}
	if err := c.out.Flush(); err != nil {
		return 0, nil, err
	}
	response, err := http.ReadResponse(c.in, r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, nil, err
	}
	if response.Close {
		c.close()
	}
	return response.StatusCode, response.Header, nil
}

// close closes the connection; the next request opens a new one.
func (c *connection) close() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn = nil
}
