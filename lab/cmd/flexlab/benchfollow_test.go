package main

import (
	"strings"
	"testing"
)

// The bytes of a poll are the bytes in both directions, divided by the polls, between two readings
// of one connection.
func TestPerPoll(t *testing.T) {
	const line = "0 0 10.0.0.9:4711 10.0.0.1:8451 cubic rto:201 bytes_sent:1200 bytes_acked:1200 " +
		"bytes_received:800 segs_out:9"
	sum, err := exchanged(strings.Fields(line))
	if err != nil || sum != 2000 {
		t.Fatalf("%d, %v", sum, err)
	}
	before := traffic{connection: "a", bytes: sum, polls: 3}
	if got, err := perPoll(before, traffic{"a", 4000, 8}); err != nil || got != 400 {
		t.Errorf("%f, %v", got, err)
	}
	for _, after := range []traffic{{"b", 4000, 8}, {"a", 4000, 3}} {
		if _, err := perPoll(before, after); err == nil {
			t.Errorf("%+v is measured", after)
		}
	}
}
