package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// watchFor bounds one watch of the Node: the API server ends it then, and the caller begins anew.
const watchFor = 5 * time.Minute

// longestEvent bounds one event of a watch, in bytes: a Node with all of its images is far smaller.
const longestEvent = 4 << 20

// errWatchEnded tells that a watch has ended by itself, as each does after some minutes.
var errWatchEnded = errors.New("the watch has ended")

// WaitDeleted returns when the Node object is deleted. It watches rather than asks, so that it
// costs an API server nothing while nothing happens. Where there is no Node, NodeMissing holds for
// the error; a watch that ends otherwise is an error too.
func (c *Client) WaitDeleted(ctx context.Context, name string) error {
	n, err := c.Node(ctx, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, watchFor+requestTimeout)
	defer cancel()
	stream, err := c.watch.Get().Resource("nodes").Param("watch", "true").
		Param("fieldSelector", "metadata.name="+name).
		Param("resourceVersion", n.ResourceVersion). // what happens from now on
		Param("timeoutSeconds", strconv.Itoa(int(watchFor.Seconds()))).Stream(ctx)
	if err != nil {
		return fmt.Errorf("cannot watch Node %s: %w", name, err)
	}
	defer stream.Close()
	return untilDeleted(stream)
}

// untilDeleted reads events until one is a deletion.
func untilDeleted(stream io.Reader) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, longestEvent)
	for lines.Scan() {
		var event struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return fmt.Errorf("cannot read an event of the watch: %w", err)
		}
		if event.Type == "DELETED" {
			return nil
		}
	}
	return errors.Join(errWatchEnded, lines.Err())
}
