package lab

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"
)

// echo starts a server that echoes every line, and returns its port.
func echo(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// freePort returns an unused port.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// A link forwards while it is open, holds data while it is stalled, and closes its connections when
// it is cut; other links are not affected.
func TestGates(t *testing.T) {
	g, to := newGates(), echo(t)
	connect := func(link string) *bufio.ReadWriter {
		port := freePort(t)
		of := func(net.Conn) (string, []byte, error) { return link, nil, nil }
		if err := g.listen(t.Context(), port, to, of); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
	}
	send := func(c *bufio.ReadWriter, line string) {
		if _, err := c.WriteString(line); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(c *bufio.ReadWriter, want string) {
		t.Helper()
		if line, err := c.ReadString('\n'); err != nil || line != want {
			t.Fatalf("%q %v", line, err)
		}
	}
	a, b := connect("a>m"), connect("b>m")
	for _, c := range []*bufio.ReadWriter{a, b} {
		send(c, "1\n")
		check(c, "1\n")
	}
	g.set(LinkStates{Stalled: []string{"a>m"}})
	send(a, "2\n")
	send(b, "2\n")
	check(b, "2\n")
	g.set(LinkStates{})
	check(a, "2\n")
	g.set(LinkStates{Cut: []string{"a>m"}})
	if _, err := a.ReadByte(); err == nil {
		t.Error("the link is not cut")
	}
	send(b, "3\n")
	check(b, "3\n")
}

// etcd's peers identify themselves.
func TestSender(t *testing.T) {
	head := "GET /raft/stream/message/1 HTTP/1.1\r\nHost: x\r\nX-Server-From: 8e9e05c52164694d\r\n\r\n"
	if got := sender([]byte(head)); got != "8e9e05c52164694d" {
		t.Errorf("%q", got)
	}
	if got := sender([]byte("GET /version HTTP/1.1\r\n\r\n")); got != "" {
		t.Errorf("%q", got)
	}
}
