package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// The provider's replicas connect to the members of their etcd, and members to each other, through
// a process that can stall or cut each of these links. So partitions need no firewall rules on the
// machine.

// linksURL is the address at which the links' states are set.
const linksURL = "http://127.0.0.1:23899"

// replicaName and memberName are the ends of links.
func replicaName(i int) string { return fmt.Sprintf("flexnode-rp-%d", i) }
func memberName(i int) string  { return fmt.Sprintf("rp-etcd-%d", i) }

// linkName returns the name of the link from a replica or member to a member.
func linkName(from, to string) string { return from + ">" + to }

// linkPort returns the port of a replica's link to a member.
func linkPort(replica, member int) int { return clientPort(member) + 3 + replica }

// peerURL returns the address of a member for other members, through their links to it.
func peerURL(member int) string { return fmt.Sprintf("http://127.0.0.1:%d", clientPort(member)+2) }

// LinkStates lists the links that are not open. A stalled link holds data until later, like a
// broken network; a cut one refuses connections.
type LinkStates struct {
	Stalled []string `json:"stalled,omitempty"`
	Cut     []string `json:"cut,omitempty"`
	// Members are the names of members by their ids, other than those of the store's start.
	Members map[string]string `json:"members,omitempty"`
}

// SetLinks sets the states of all links.
func (l *Lab) SetLinks(ctx context.Context, states LinkStates) error {
	text, err := json.Marshal(states)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, linksURL, bytes.NewReader(text))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("cannot change the links: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("cannot change the links: %s", response.Status)
	}
	return nil
}

// startLinks starts the process that serves the links.
func (l *Lab) startLinks(ctx context.Context) error {
	if err := l.background("links", l.Self, "links", fmt.Sprint(l.Members)); err != nil {
		return err
	}
	return until(ctx, time.Minute, "the links to the provider's etcd", func() error {
		return l.SetLinks(ctx, LinkStates{})
	})
}

// ServeLinks serves the links to a number of members until ctx ends.
func ServeLinks(ctx context.Context, members int) error {
	ids, err := memberIDs(members)
	if err != nil {
		return err
	}
	g := newGates()
	for m := range members {
		to, port := memberName(m), clientPort(m)
		for r := range maxReplicas {
			name := linkName(replicaName(r), to)
			known := func(net.Conn) (string, []byte, error) { return name, nil, nil }
			if err := g.listen(ctx, linkPort(r, m), port, known); err != nil {
				return err
			}
		}
		peer := func(c net.Conn) (string, []byte, error) {
			head, err := readHead(c)
			return linkName(cmp.Or(g.member(sender(head)), ids[sender(head)]), to), head, err
		}
		if err := g.listen(ctx, port+2, port+1, peer); err != nil {
			return err
		}
	}
	return g.serveControl(ctx)
}

// memberIDs returns the names of members by their ids in etcd.
func memberIDs(members int) (map[string]string, error) {
	ids := map[string]string{}
	for i := range members {
		urls, err := types.NewURLs([]string{peerURL(i)})
		if err != nil {
			return nil, fmt.Errorf("internal error: %w", err)
		}
		// the default cluster name (etcd's embed.DefaultInitialClusterToken)
		m := membership.NewMember(memberName(i), urls, "etcd-cluster", nil)
		ids[m.ID.String()] = memberName(i)
	}
	return ids, nil
}

// sender returns the id of the member that sent a request, which etcd's peers set in a header; ""
// without it.
func sender(head []byte) string {
	for line := range strings.Lines(string(head)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(name, "X-Server-From") {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// maxHead is the max length of a request's head.
const maxHead = 16 << 10

// readHead reads from a connection until it has the first request's head, and returns what it read.
func readHead(c net.Conn) ([]byte, error) {
	var head []byte
	buffer := make([]byte, 4<<10)
	for !bytes.Contains(head, []byte("\r\n\r\n")) {
		if len(head) > maxHead {
			return nil, errors.New("the head of a request is too long")
		}
		n, err := c.Read(buffer)
		head = append(head, buffer[:n]...)
		if err != nil {
			return nil, err
		}
	}
	return head, nil
}

// serveControl serves changes of the links' states until ctx ends.
func (g *gates) serveControl(ctx context.Context) error {
	server := &http.Server{Addr: strings.TrimPrefix(linksURL, "http://"),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			var states LinkStates
			if err == nil {
				err = json.Unmarshal(text, &states)
			}
			if err != nil || r.Method != http.MethodPut {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			g.set(states)
			w.WriteHeader(http.StatusNoContent)
		})}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
