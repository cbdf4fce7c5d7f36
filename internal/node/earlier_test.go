package node

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// A node of the release before placeholders (commit bd1efd1, whose golden files testdata/bd1efd1
// holds; they are never updated) has the same bytes when it is rendered now, but for what is listed
// here.
func TestBytesOfTheReleaseBefore(t *testing.T) {
	for _, e := range examples() {
		if e.earlier {
			c, f, b := e.inputs()
			compareWithEarlier(t, e.name, Bind(Render(c, f), b), b)
		}
	}
	for _, path := range bundles(t) {
		name, c := bundle(t, path)
		if c.Azure.ArcEnabled() { // the release before had another default
			c.Azure.KubeletCredential = config.CredentialToken
		}
		compareWithEarlier(t, name, Bind(Render(c, facts()), bindings()), bindings())
	}
}

// compareWithEarlier compares what waits for nothing that is unknown: the release before left out
// the rest.
func compareWithEarlier(t *testing.T, name string, d state.Desired, b Bindings) {
	t.Helper()
	old, err := os.ReadFile(filepath.Join("testdata", "bd1efd1", name+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	now, _, _ := d.Cut(func(need state.Need) bool { return cut(b, need) })
	want, got := blocks(t, withoutRegistration(string(old))), blocks(t, asEarlier(text(now)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is not as the release before had it (-then +now):\n%s", name, diff)
	}
}

// withoutRegistration takes labels and taints out of the files of the release before.
func withoutRegistration(old string) string {
	old = regexp.MustCompile(`(?m)^  \|   --node-labels=.*\n`).ReplaceAllString(old, "")
	const taints = `(?m)^  \|   "registerWithTaints": \[\n(?:  \|    .*\n)*  \|   \],\n`
	return regexp.MustCompile(taints).ReplaceAllString(old, "")
}

// asEarlier takes out what the release before did not have: the file of labels and taints with its
// use in kubelet's unit, the restart of the node-problem-detector for a new kubeconfig, and what an
// item needs.
func asEarlier(now string) string {
	for _, added := range []string{
		`kubelet: write /etc/kubernetes/aks-flex-node-registration.env\n(?:  .*\n)*`,
		`  \| EnvironmentFile=/etc/kubernetes/aks-flex-node-registration.env\n`,
		`  \|   \$KUBELET_REGISTRATION_ARGS \\\n`,
		`  (?:needs|only) .*\n`,
	} {
		now = regexp.MustCompile(`(?m)^`+added).ReplaceAllString(now, "")
	}
	return strings.ReplaceAll(now,
		"  owes kubelet.service node-problem-detector.service\n", "  owes kubelet.service\n")
}

// blocks takes the text of a node apart, by the first line of each item.
func blocks(t *testing.T, node string) map[string]string {
	t.Helper()
	items := map[string]string{}
	name := ""
	for line := range strings.Lines(node) {
		if !strings.HasPrefix(line, "  ") {
			name = line
			if _, twice := items[name]; twice {
				t.Fatalf("%q is there twice", name)
			}
		}
		items[name] += line
	}
	return items
}
