package front

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// stop has the index that requests are answered from remain as it is.
func (w *world) stop() {
	w.t.Helper()
	index := store.NewIndex(w.api.Store)
	must(0, index.Load(w.t.Context()))
	w.api.Index = index
}

// An index that is behind may take another machine for a node: the machine that is the node now is
// let in, and the former one learns nothing of the other.
func TestIndexIsBehind(t *testing.T) {
	w, i, ops := guarded(t)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"), ops)
	w.caughtUp()
	w.stop()
	w.must(200, "DELETE", nodeURL("n"), "", ops)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientB, "y"), ops)
	former, present := i.app(t, w, clientA), i.app(t, w, clientB)
	w.must(200, "GET", nodeURL("n"), "", present)
	w.must(204, "POST", nodeURL("n", "/reportStatus"), "{}", present)
	_, text := w.must(403, "GET", nodeURL("n"), "", former)
	if strings.Contains(text, clientB) {
		t.Errorf("the former machine is told %s", text)
	}
	w.must(403, "POST", nodeURL("n", "/reportStatus"), "{}", former)
	w.must(403, "POST", nodeURL("n", "/refreshCredentials"), "{}", former)
}

// A subscription that was registered a moment ago is.
func TestIndexIsBehindASubscription(t *testing.T) {
	w := beside(t)
	w.tell(`{"state":"Unregistered"}`)
	w.stop()
	w.must(200, "POST", "/subscriptions/"+subscription+
		"/providers/Microsoft.ContainerService/register?api-version=2021-04-01", "")
	w.api.Patience = time.Millisecond
	w.must(201, "PUT", clusterURL, `{"location":"westeurope","properties":{}}`)
}

// However long the store takes to list nodes, a registration without any can be deleted.
func TestDeleteDoesNotListNodes(t *testing.T) {
	w := newEdge(t)
	w.during("scan", func() { w.clock.Pass(time.Minute) })
	w.must(202, "DELETE", clusterURL, "")
}

// Who has no role costs the store next to nothing, whatever names he makes up.
func TestStrangersDoNotWorkTheStore(t *testing.T) {
	w, i, _ := guarded(t)
	who := i.app(t, w, clientB)
	reads := w.memory.Reads()
	for n := range 100 {
		w.must(403, "GET", nodeURL("made-up-"+strconv.Itoa(n)), "", who)
	}
	if got := w.memory.Reads() - reads; got > 30 {
		t.Errorf("100 refused requests have read the store %d times", got)
	}
}
