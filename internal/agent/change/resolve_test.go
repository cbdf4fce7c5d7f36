package change

import (
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
)

// bundle makes a bundle of certificates, one of each letter.
func bundle(letters string) string {
	var b strings.Builder
	for _, letter := range letters {
		b.WriteString("-----BEGIN CERTIFICATE-----\n" + string(letter) + "\n-----END CERTIFICATE-----\n")
	}
	return b.String()
}

// A machine that lost most of its memory is another one: what was reserved of it would not fit.
func TestSmallerMachine(t *testing.T) {
	applied := &generation.Generation{Facts: node.Facts{Memory: 16 << 30}}
	h := &Home{Node: &inspect.Node{Saved: &saved.State{Applied: applied}}}
	for memory, want := range map[int64]bool{2 << 30: false, 15 << 30: true, 32 << 30: true} {
		if same := sameMachine(h, config.Config{}, node.Facts{Memory: memory}); same != want {
			t.Errorf("with %d MiB of memory, it is the same: %t", memory>>20, same)
		}
	}
}

// The next rotation keeps the CA of now, and drops the one before it.
func TestFormerCA(t *testing.T) {
	for _, tt := range []struct{ name, ca, former, told, want, wantFormer string }{
		{"first rotation", "A", "", "B", "BA", "A"},
		{"second rotation", "BA", "A", "C", "CB", "B"},
		{"told both", "A", "", "BA", "BA", "A"},
		{"nothing new", "BA", "A", "B", "BA", "A"},
		{"back again", "BA", "A", "A", "AB", ""},
		{"old first, then the new alone", "AB", "A", "B", "BA", ""},
		{"after that", "AB", "", "C", "CAB", "AB"},
		{"of a release that did not tell", "BA", "", "C", "CBA", "BA"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			was := saved.Bindings{
				Bindings: node.Bindings{Server: "https://x", CA: bundle(tt.ca), Joined: true},
				FormerCA: bundle(tt.former),
			}
			h := &Home{Node: &inspect.Node{Env: &inspect.Env{}, Saved: &saved.State{Bindings: was}},
				Agent: &Agent{}}
			next := bindingsFor(h, &Target{At: inspect.Cluster{Server: "https://x", CA: bundle(tt.told)}})
			if want := bundle(tt.want); next.CA != want {
				t.Errorf("the CA is\n%s\nwant\n%s", next.CA, want)
			}
			if is, want := was.NextFormerCA(next.CA), bundle(tt.wantFormer); is != want {
				t.Errorf("the former CA is\n%s\nwant\n%s", is, want)
			}
		})
	}
}
