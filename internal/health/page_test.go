package health

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/reference/conditions.md")

// row holds the text of the page about a condition.
type row struct{ Name, Marks, Means, Owner, Remedy string }

// rows returns what testdata/conditions.txt says, by the name of the condition.
func rows(t *testing.T) map[string]row {
	t.Helper()
	text, err := os.ReadFile("testdata/conditions.txt")
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]row{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(strings.TrimSpace(line), " | ")
		if len(parts) != 4 {
			t.Fatalf("%d parts, not four: %s", len(parts), line)
		}
		list[parts[0]] = row{parts[0], "", parts[1], parts[2], parts[3]}
	}
	return list
}

// marks returns the occasions of a condition, as letters of the page.
func (c entry) marks() string {
	text := ""
	for _, m := range []struct {
		letter string
		of     bool
	}{
		{"P", c.use&Preflight != 0}, {"G", c.use&Gate != 0}, {"A", c.use&harmless != 0},
		{"D", c.use&Watch == 0},
	} {
		if m.of {
			text += m.letter
		}
	}
	return text
}

// docs/reference/conditions.md has every condition, in the order of the catalogue.
func TestPage(t *testing.T) {
	const page = "../../docs/reference/conditions.md"
	known, list := rows(t), []row(nil)
	for _, c := range catalogue() {
		r, ok := known[c.name]
		if !ok {
			t.Errorf("testdata/conditions.txt lacks %s", c.name)
		}
		delete(known, c.name)
		r.Marks = c.marks()
		list = append(list, r)
	}
	for name := range known {
		t.Errorf("testdata/conditions.txt has %s, which is no condition", name)
	}
	var text strings.Builder
	from := template.Must(template.ParseFiles("testdata/conditions.md.tmpl"))
	if err := from.Execute(&text, list); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(page, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("%s is out of date (make golden):\n%s", page, diff)
	}
}

// Every reason that the program gives is on the page.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	given := regexp.MustCompile(`\bOwner\w+,\s*"([A-Z][A-Za-z0-9]+)"`)
	count := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range given.FindAllSubmatch(text, -1) {
			count++
			if !strings.Contains(string(page), fmt.Sprintf("`%s`", found[1])) {
				t.Errorf("%s: the reason %s is not documented", file, found[1])
			}
		}
	}
	if count < 50 {
		t.Errorf("only %d reasons were found", count)
	}
}
