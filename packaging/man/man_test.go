package man

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/pagetest"
)

// mandoc has no complaints about the pages.
func TestLint(t *testing.T) {
	if _, err := exec.LookPath("mandoc"); err != nil {
		t.Skip("there is no mandoc here")
	}
	count := 0
	for _, program := range []string{"aks-flex-node", "flexnode-rp"} {
		pages, err := Pages(program, time.Unix(1767312000, 0))
		if err != nil {
			t.Fatal(err)
		}
		for page, text := range pages {
			count++
			lint := exec.Command("mandoc", "-T", "lint")
			lint.Stdin = strings.NewReader(text)
			if said, err := lint.CombinedOutput(); err != nil || len(said) > 0 {
				t.Errorf("%s: %v\n%s", page, err, said)
			}
		}
	}
	if count != 3 {
		t.Errorf("there are %d pages", count)
	}
	if _, err := Pages("other", time.Time{}); err == nil {
		t.Error("a program without pages has some")
	}
}

// Text that looks like roff requests or escapes, or like Markdown markup, is rendered verbatim.
func TestText(t *testing.T) {
	p := pagetest.New("x", "8", "y")
	p.Text(".so\n'a \\n --b *c* _d_ <e> [f](g) \n\n  .nf `c` *d*")
	p.Item("-x, --y_z N", "- 'k' &amp; #1")
	page := filepath.Join(t.TempDir(), "packaging/man/pages")
	if err := os.MkdirAll(page, 0o755); err != nil {
		t.Fatal(err)
	}
	p.Check(t, strings.TrimSuffix(page, "packaging/man/pages"), true)
	text, err := os.ReadFile(filepath.Join(page, "x.8.markdown"))
	if err != nil {
		t.Fatal(err)
	}
	shown := exec.Command("mandoc", "-T", "ascii")
	shown.Stdin = strings.NewReader(render(string(text), time.Time{}))
	out, err := shown.Output()
	if err != nil {
		t.Skip("there is no mandoc here")
	}
	plain := regexp.MustCompile(".\x08").ReplaceAllString(string(out), "") // bold and underlined
	for _, want := range []string{"  .so 'a \\n --b *c* _d_ <e> [f](g)\n", "  .nf `c` *d*\n",
		"  -x, --y_z N\n", "  - 'k' &amp; #1\n"} {
		if !strings.Contains(plain, want) {
			t.Errorf("it does not have %q:\n%s", want, plain)
		}
	}
}
