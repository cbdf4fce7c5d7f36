package release

import (
	_ "embed"
	"strings"
	"testing"
)

//go:embed testdata/witness.txt
var witness string

// An independently kept list has the same digests as pins.txt for every release that is in both
// (docs/decisions/0005).
func TestSecondWitness(t *testing.T) {
	agree := map[string]int{}
	for line := range strings.Lines(witness) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) != 4 {
			t.Fatalf("testdata/witness.txt: a line with %d fields: %q", len(f), line)
		}
		name, version, arch, digest := f[0], f[1], f[2], f[3]
		switch pinned := Pinning(name, version, arch).Digest; pinned {
		case digest:
			agree[name]++
		case "":
			t.Errorf("%s %s for %s is not pinned: the line compares nothing", name, version, arch)
		default:
			t.Errorf("%s %s for %s is pinned as %s, and the second list has %s", name, version, arch,
				pinned, digest)
		}
	}
	t.Logf("of %d pins these have a second witness: %v", len(Pins()), agree)
	for _, name := range Names() {
		// No second list of node-problem-detector is known, and it publishes no checksum file.
		if agree[name] == 0 && name != "node-problem-detector" {
			t.Errorf("no pin of %s has a second witness", name)
		}
	}
}
