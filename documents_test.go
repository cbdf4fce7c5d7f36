package flexnode

import (
	"iter"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The reference has every audit line, code of an error and action of the provider, and every file
// that the agent keeps.
func TestReferenceIsComplete(t *testing.T) {
	const reference = "docs/reference/"
	for _, c := range []struct {
		dir, page, what string
		least           int
	}{
		{"internal/agent/", "files.md", `[fF]ile +(?:string)?= "([a-z-]+\.\w+)"`, 15},
		{"internal/rp/", "metrics.md", `Audit\.(?:Info|Warn)\(\s*"([^"]+)"`, 10},
		{"internal/rp/", "api.md", `arm\.Errorf\([^,"]+, "([A-Z]\w+)"`, 40},
		{"internal/rp/", "api.md", `\{action: "(\w+)"`, 15},
	} {
		page, err := os.ReadFile(reference + c.page)
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for file, literal := range literals(t, c.dir, regexp.MustCompile(c.what)) {
			count++
			word := regexp.MustCompile(`(?:^|\W)` + regexp.QuoteMeta(literal) + `(?:\W|$)`)
			if !word.Match(page) {
				t.Errorf("%s: %s%s lacks %q", file, reference, c.page, literal)
			}
		}
		if count < c.least {
			t.Errorf("only %d matches of %s were found", count, c.what)
		}
	}
}

// Each audit line of the reference is a text of the program.
func TestAuditLinesExist(t *testing.T) {
	page, err := os.ReadFile("docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, text := range literals(t, "internal/rp/", regexp.MustCompile(`"([^"\n]+)"`)) {
		known[text] = true
	}
	_, list, _ := strings.Cut(string(page), "\n## Audit lines\n")
	rows := regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllString(list, -1)
	lines := regexp.MustCompile("`(.*?)`").FindAllStringSubmatch(strings.Join(rows, ""), -1)
	if len(lines) < 10 {
		t.Errorf("only %d audit lines were found", len(lines))
	}
	for _, line := range lines {
		if !known[line[1]] {
			t.Errorf("the provider does not print %q", line[1])
		}
	}
}

// literals yields what a pattern finds in the Go source below a directory, tests left out, with the
// file that has it.
func literals(t *testing.T, dir string, pattern *regexp.Regexp) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, file := range files(t) {
			if !strings.HasPrefix(file, dir) || path.Ext(file) != ".go" ||
				strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range pattern.FindAllSubmatch(text, -1) {
				if !yield(file, string(found[1])) {
					return
				}
			}
		}
	}
}

// The index of the decisions has each record with its number, title, date and status, in order, and
// whatever refers to a decision refers to one that is there.
func TestDecisionsAreIndexed(t *testing.T) {
	const dir = "docs/decisions/"
	index, err := os.ReadFile(dir + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(
		`(?m)^\| \[(\d+)\]\((\S+)\) \| (.+) \| \d{4}-\d\d-\d\d \| (?:accepted|proposed) \|$`)
	var want, got []string
	numbers := map[string]bool{}
	for _, found := range row.FindAllStringSubmatch(string(index), -1) {
		got = append(got, strings.Join(found[1:], " "))
	}
	all := files(t)
	for _, file := range all {
		name, ok := strings.CutPrefix(file, dir)
		if !ok || name == "README.md" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		heading, _, _ := strings.Cut(string(text), "\n")
		number, title, _ := strings.Cut(strings.TrimPrefix(heading, "# "), ". ")
		if before, _, _ := strings.Cut(name, "-"); strings.TrimLeft(before, "0") != number {
			t.Errorf("%s begins with %q, not with # N. Title of its number", file, heading)
		}
		numbers[number] = true
		want = append(want, strings.Join([]string{number, name, title}, " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records and index differ (-records +%sREADME.md):\n%s", dir, diff)
	}
	for file, number := range decisionsNamed(t, all) {
		if !numbers[number] {
			t.Errorf("%s names decision %s, which is not there", file, number)
		}
	}
}

// decisionsNamed yields each mention of a decision by its number, with the file that has it.
func decisionsNamed(t *testing.T, all []string) iter.Seq2[string, string] {
	named := regexp.MustCompile(`\b[Dd]ecisions?[ \n/]+(?://\s*)?(?:0*)(\d+)\b`)
	return func(yield func(string, string) bool) {
		for _, file := range all {
			if !slices.Contains([]string{".go", ".md", ".yaml", ".sh", ".py", ".tsp"}, path.Ext(file)) {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range named.FindAllSubmatch(text, -1) {
				if !yield(file, string(found[1])) {
					return
				}
			}
		}
	}
}
