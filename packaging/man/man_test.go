package man

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mandoc has nothing to say against the pages.
func TestLint(t *testing.T) {
	if _, err := exec.LookPath("mandoc"); err != nil {
		t.Skip("there is no mandoc here")
	}
	pages, err := filepath.Glob("pages/*.[58]")
	if err != nil || len(pages) != 3 {
		t.Fatalf("the pages are %q, %v", pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lint := exec.Command("mandoc", "-T", "lint")
		lint.Stdin = strings.NewReader(strings.ReplaceAll(string(text), Date, "2026-01-02"))
		if said, err := lint.CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%s: %v\n%s", page, err, said)
		}
	}
}

// What roff would take for a request or an escape is text.
func TestText(t *testing.T) {
	p := New("x", "8", "y")
	p.Text(".so\n'a \\n --b\n\n  .nf `c`")
	const want = "\\&.so 'a \\en \\-\\-b\n.PP\n.nf\n.RS 4\n  .nf \\(gac\\(ga\n"
	if got := p.String(); !strings.Contains(got, want) {
		t.Errorf("%s", got)
	}
}
