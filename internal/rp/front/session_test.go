package front

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A session gives back the caller that it was made of; no part of one becomes another's.
func TestSession(t *testing.T) {
	for _, c := range []Caller{
		{TenantID: "t", ObjectID: "o", AppID: "a", Name: "a", Type: "Application"},
		{TenantID: "t", ObjectID: "o", AppID: "a", Name: "ops@example.com", Type: "User"},
		{TenantID: "t", ObjectID: "o", AppID: "a", Name: "a", Type: "ManagedIdentity",
			MachineID: "/subscriptions/s/machines/m"},
		{TenantID: "t", ObjectID: "o", Type: "Application"},
		{Type: "Application"},
	} {
		if diff := cmp.Diff(c, newSession(c, time.Time{}).caller()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// BenchmarkSession tells what the token of an agent that was verified costs in memory.
func BenchmarkSession(b *testing.B) {
	const agents = 100_000
	e := &Entra{}
	for b.Loop() {
		e.known = nil
		before := heapInUse()
		e.known = newKnown()
		for n := range agents {
			id := fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", n)
			c := Caller{TenantID: "11111111-1111-1111-1111-111111111111", ObjectID: "b" + id[1:],
				AppID: id, Name: id, Type: "Application"}
			e.known.Add(hashOf(id), newSession(c, time.Now()))
		}
		b.ReportMetric(float64(heapInUse()-before)/agents, "bytes/token")
	}
	runtime.KeepAlive(e)
}
