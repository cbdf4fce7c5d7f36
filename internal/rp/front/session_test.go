package front

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
)

// A session gives back the caller that it was made of; no part of one becomes another's.
func TestSession(t *testing.T) {
	lower := "aaaaaaaa-0000-4000-8000-00000000000b"
	upper := strings.ToUpper(lower)
	for _, c := range []Caller{
		{TenantID: "t", ObjectID: "o", AppID: "a", Name: "a", Type: "Application"},
		{TenantID: "t", ObjectID: "o", AppID: "a", Name: "ops@example.com", Type: "User"},
		{TenantID: "t", ObjectID: "o", AppID: "a", Name: "a", Type: "ManagedIdentity",
			MachineID: "/subscriptions/s/machines/m"},
		{TenantID: "t", ObjectID: "o", Type: "Application"},
		{Type: "Application"},
		{TenantID: "t", ObjectID: lower, AppID: upper, Name: upper, Type: "Application"},
		{TenantID: "t", ObjectID: upper, AppID: lower, Name: "n", Type: "Application"},
		{TenantID: "t", ObjectID: "{" + lower + "}", AppID: "urn:uuid:" + lower,
			Name: "urn:uuid:" + lower, Type: "Application"},
		{TenantID: "t", ObjectID: uuid.Nil.String(), AppID: uuid.Nil.String(),
			Name: uuid.Nil.String(), Type: "Application"},
	} {
		if diff := cmp.Diff(c, newSession(c, time.Time{}).caller()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// The token of an agent that was verified takes little: there are as many as agents.
func TestSessionsAreSmall(t *testing.T) {
	const agents, most = 100_000, 192
	before := heapInUse()
	known := must(lru.New[tokenHash, session](verified))
	e := &Entra{known: known}
	for n := range agents {
		id := fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", n)
		c := Caller{TenantID: "11111111-1111-1111-1111-111111111111", ObjectID: "b" + id[1:],
			AppID: id, Name: id, Type: "Application"}
		e.known.Add(hashOf(id), newSession(c, time.Now()))
	}
	bytes := (int(heapInUse()) - int(before)) / agents
	t.Logf("%d bytes", bytes)
	if bytes > most {
		t.Errorf("a token takes %d bytes, more than %d", bytes, most)
	}
	runtime.KeepAlive(e)
}
