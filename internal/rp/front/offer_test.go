package front

import (
	"strings"
	"testing"
	"time"
)

// The agent of a node that runs its assigned revision gets an undisturbing change with the first
// answer. A change that waits for a slot is not offered to it, but shown to others.
func TestAPollIsWokenByWhatIsOffered(t *testing.T) {
	waiting(t, func(t *testing.T, w *world, same string) {
		with := func(settings string) string {
			return strings.Replace(nodeOf(clientA, "x"), `"azureAuth"`,
				`"nodeConfig":{`+settings+`},"azureAuth"`, 1)
		}
		w.report("n", w.desires("n"), "")
		a := w.poll(t, asA, same, wait20)
		time.Sleep(time.Second)
		etag := w.node(200, "PUT", nodeURL("n"), with(`"labels":{"site":"b"}`)).ETag
		a.is(200, time.Second, "wait=20")
		has(t, "the answer", a.text, `"site":"b"`)
		equal(t, "its ETag", a.header.Get("ETag"), etag)
		w.report("n", w.desires("n"), "")
		a = w.poll(t, asA, "If-None-Match: "+etag, wait20)
		owner := w.poll(t, "If-None-Match: "+etag, wait20)
		w.settles(200, "PUT", nodeURL("n"), with(`"labels":{"site":"b"},"maxPods":77`))
		owner.is(200, 0, "wait=20")
		has(t, "what the owner has", owner.text, "77", "AwaitingRollout")
		a.waits()
		time.Sleep(time.Second)
		w.admit()
		a.is(200, time.Second, "wait=20")
		has(t, "the answer", a.text, "77")
		lacks(t, "its ETag", a.header.Get("ETag"), etag)
	})
}
