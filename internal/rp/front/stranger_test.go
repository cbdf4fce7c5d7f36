package front

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
)

// tries sends a request that is signed with the machine's key, and returns the status.
func (m *machine) tries(method, url, body string) int {
	path, _, _ := strings.Cut(url, "?")
	bound := machinekey.RequestOf(method, path, []byte(body))
	if method == "GET" {
		bound = machinekey.Request{}
	}
	return m.w.serve(method, url, body, m.signs(bound)).Code
}

// floods has machines with unknown keys, of other subscriptions and at the same address, send
// requests until they are refused.
func (w *world) floods(t *testing.T, n int, method, action, body string) {
	codes := map[int]int{}
	for range n {
		stranger := w.machineOfUID("x", uuid.NewString())
		url := strings.Replace(nodeURL("x", action), subscription, uuid.NewString(), 1)
		codes[stranger.tries(method, url, body)]++
	}
	t.Log("the strangers get", codes)
}

// Strangers behind the address of a site do not keep its machines from registering.
func TestStrangersDoNotBlockRegistration(t *testing.T) {
	w, m := newMachine(t)
	body := fmt.Sprintf(`{"enrolmentSecret":%q}`, w.enrolment(t, "n"))
	w.api.Throttle = fair.NewThrottle(fair.DefaultRates(), nil, w.clock.Now)
	w.floods(t, 300, "POST", "/registerKey", `{"enrolmentSecret":"x"}`)
	equal(t, "the machine gets", m.tries("POST", nodeURL("n", "/registerKey"), body), 204)
}

// Nor from learning that their node was deleted.
func TestStrangersDoNotHideATombstone(t *testing.T) {
	w, m := enrolled(t)
	w.settles(200, "DELETE", nodeURL("n"), "")
	w.floods(t, 15, "GET", "", "")
	equal(t, "the machine of the deleted node gets", m.tries("GET", nodeURL("n"), ""), 404)
}

// What is not in the quota of bytes is short.
func TestLongValues(t *testing.T) {
	w := newEdge(t)
	w.must(400, "PUT", nodeURL("n"), nodeOf(clientA, strings.Repeat("s", 2000)))
	w.refused(400, "InvalidParameter", "PUT", clusterURL, registration(`"serverUrl":"https://`+
		strings.Repeat("ab", 200)+`"`), "at most 300 bytes")
}
