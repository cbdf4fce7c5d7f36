package e2e

import (
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/lab/conformance"
)

// Some of Kubernetes' own conformance tests pass on a flex node. They may use every node that there
// is, so no other test runs meanwhile.
func TestConformance(t *testing.T) {
	peer(t)
	var said strings.Builder
	suite, err := conformance.New(t.Context(), bench, 5, &said)
	if err != nil {
		t.Fatal(err)
	}
	got, err := suite.Run(t.Context(), conformance.Few())
	if err != nil || got.Passed != len(conformance.Few()) {
		t.Fatalf("%s: %v\n%s\n%s", got, err, strings.Join(got.Failed, "\n"), &said)
	}
	t.Log(got)
}
