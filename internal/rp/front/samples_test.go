package front

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// sample returns a request or an answer of document 004, by the line on which it begins there
// (testdata/documents), without its comments, which JSON does not have.
func sample(t *testing.T, line string) string {
	text := string(must(os.ReadFile("testdata/documents/004-" + line + ".json")))
	text = regexp.MustCompile(`(?m)(^|\s)// .*$`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`,(\s*[}\]])`).ReplaceAllString(text, "$1")
	return strings.ReplaceAll(text, "your-tenant-here", tenant)
}

// includes returns the members of a sample that an answer lacks, or has with another type.
func includes(sample, answer any, at string) []string {
	var wrong []string
	switch want := sample.(type) {
	case map[string]any:
		got, _ := answer.(map[string]any)
		for name, value := range want {
			has, ok := got[name]
			if !ok {
				wrong = append(wrong, at+"."+name+" is missing")
				continue
			}
			wrong = append(wrong, includes(value, has, at+"."+name)...)
		}
	case []any:
		got, _ := answer.([]any)
		if len(got) < len(want) {
			return []string{fmt.Sprintf("%s has %d items of %d", at, len(got), len(want))}
		}
		for i, value := range want {
			wrong = append(wrong, includes(value, got[i], fmt.Sprintf("%s[%d]", at, i))...)
		}
	case string:
		// The provider's own states are the same word; the rest are examples.
		got, ok := answer.(string)
		word := strings.HasSuffix(at, ".provisioningState") || strings.HasSuffix(at, ".status")
		if !ok || word && got != want {
			return []string{fmt.Sprintf("%s is %v, want %q", at, answer, want)}
		}
	default:
		if fmt.Sprintf("%T", sample) != fmt.Sprintf("%T", answer) {
			return []string{fmt.Sprintf("%s is %v, want %v", at, answer, sample)}
		}
	}
	return wrong
}

// Every request of document 004 is accepted, and every answer has all members in the document. Its
// versions are older than the pinned ones: the operator sets their digests.
func TestSamplesOfTheDocument(t *testing.T) {
	w := beside(t)
	digests := map[string]any{}
	for _, name := range []string{"kubelet", "kubectl", "kubeadm", "containerd"} {
		digests[name] = map[string]any{"sha256": strings.Repeat("ab", 32)}
	}
	w.api.Defaults = defaults(map[string]any{"artifacts": map[string]any{"overrides": digests}})
	w.register("")
	w.older("1.31.0")
	const name = "edge-node-1"
	check := func(line, text string) {
		t.Helper()
		want, got := decoded[any](t, sample(t, line)), decoded[any](t, text)
		for _, wrong := range includes(want, got, "004:"+line) {
			t.Errorf("%s\n%s", wrong, text)
		}
	}
	printed := string(must(os.ReadFile("testdata/documents/004-450.json")))
	w.must(400, "PUT", nodeURL(name), printed) // comments are no JSON

	_, text := w.must(201, "PUT", nodeURL(name)+"&configUrl=true", sample(t, "359"))
	check("387", text)
	_, bundle := w.must(200, "GET", path(shownNode(t, text).Properties.ConfigURL), "")
	check("404", bundle)
	_, text = w.must(200, "PUT", nodeURL(name), sample(t, "450"))
	check("480", text)
	version := shownNode(t, text).Properties.ConfigVersion
	w.must(201, "PUT", nodeURL("edge-node-2"), sample(t, "450"))
	w.says(name, version, api.Condition{Type: "Ready", Status: "True"})
	w.says("edge-node-2", version,
		api.Condition{Type: "Ready", Status: "False", Reason: "KubeletNotReady"})
	_, text = w.must(200, "GET", nodeURL(name), "")
	check("533", text)
	_, text = w.must(200, "GET", nodesURL, "")
	check("621", text)
	_, text = w.must(200, "POST", nodeURL(name, "/regenerateToken"), "{}")
	check("751", text)
	_, text = w.must(200, "DELETE", nodeURL(name), "")
	check("588", text)
}

// older gives the world's cluster an API server of an older version.
func (w *world) older(version string) {
	w.t.Helper()
	w.until("the cluster is known", func() bool { return w.storedCluster().Facts != "" })
	w.upgrade(version)
}

// says reports the applied configuration as a node's agent, and the node's Ready condition.
func (w *world) says(name, version string, ready api.Condition) {
	w.t.Helper()
	ready.LastTransitionTime = w.clock.Now()
	w.must(204, "POST", nodeURL(name, "/reportStatus"), `{"appliedConfigVersion":"`+version+
		`","lastConfigApplied":"2026-05-01T12:00:00Z"}`)
	edit(w, w.api.Store.Status, clusterKey+"/"+name, func(s *flexnode.Status) { s.Ready = &ready })
}
