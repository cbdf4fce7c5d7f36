package flexnode

import (
	"cmp"
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// phrasesLeft is the number of phrases below that the repository still has. It may only fall.
const phrasesLeft = 2

// replaced are phrases that the project replaces, each with its replacement. The first that matches
// counts.
var replaced = []struct{ not, but string }{
	{`tells? whether`, "reports whether"},
	{`(?:is|are) told`, "the reported ...; receives, reads"},
	{`of before`, "previous, old"},
	{`that (?:was|were) before`, "previous, old"},
	{`begins? anew with`, "restart from"},
	{`anew`, "again"},
	{`once more`, "again"},
	{`somebody`, "another process, an operator, a caller"},
	{`whoever`, "another process, an operator, a caller"},
	{`nobody is asked`, "no request is made"},
	{`nobody`, "no one, no caller, no process"},
	{`who asks`, "the caller"},
	{`good for one`, "works once"},
	{`put right`, "repaired, fixed"},
	{`mended`, "repaired, fixed"},
	{`brings? about`, "causes"},
	{`no good`, "invalid, unusable"},
	{`is theirs`, "belongs to ..."},
	{`comes? onto (?:a |the )?machines?`, "is installed"},
	{`as it was made`, "unchanged"},
	{`there is none`, "not found"},
}

// nounClause matches a doc comment of the form "X is what ...".
var nounClause = regexp.MustCompile(
	`(?:\A|\n[ \t]*|\x00[^\n]*)\n[ \t]*// [\w.]+ (?:is|are) (?:what|who|how|where|those|that)\b`)

// limitName matches an identifier that calls a limit "most".
var limitName = regexp.MustCompile(`^most[A-Z]|[a-z]Most$`)

// notProse are the files that are not read: this one, which has the phrases, and those in testdata.
var notProse = regexp.MustCompile(`^language_test\.go$|(^|/)testdata/`)

// TestLanguage holds the plain English of CONTRIBUTING.md: comments, messages and documents have no
// more phrases of the table than they had.
func TestLanguage(t *testing.T) {
	count, example := map[string]int{}, map[string]string{}
	perFile, total := map[string]int{}, 0
	for _, file := range files(t) {
		if notProse.MatchString(file) ||
			!slices.Contains([]string{".go", ".md", ".tsp", ".py", ".sh"}, path.Ext(file)) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range phrases(file, text) {
			count[f.rule]++
			perFile[file]++
			total++
			example[f.rule] = cmp.Or(example[f.rule], fmt.Sprintf("%s:%d", file, f.line))
		}
	}
	if total == phrasesLeft {
		return
	}
	for _, rule := range largest(count, 25) {
		t.Logf("%5d  %s, as in %s", count[rule], rule, example[rule])
	}
	for _, file := range largest(perFile, 15) {
		t.Logf("%5d  %s", perFile[file], file)
	}
	if total > phrasesLeft {
		t.Errorf("%d phrases, more than %d: write plain English, see CONTRIBUTING.md",
			total, phrasesLeft)
	} else {
		t.Errorf("%d phrases, fewer than %d: write `const phrasesLeft = %d` in language_test.go",
			total, phrasesLeft, total)
	}
}

// found is a phrase of a file.
type found struct {
	rule string
	line int
}

var replacedPattern = func() *regexp.Regexp {
	var list []string
	for _, r := range replaced {
		list = append(list, "("+strings.ReplaceAll(r.not, " ", gap)+")")
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(list, "|") + `)\b`)
}()

// gap is the room between two words: also the end of a line and the start of the next comment.
const gap = `[ \t]*(?:[ \t]|\n[ \t]*(?:// )?)`

// phrases returns the phrases of a file.
func phrases(file string, text []byte) (list []found) {
	if path.Ext(file) == ".go" {
		if strings.HasPrefix(string(text), "// Code generated") {
			return nil
		}
		var names []found
		text, names = prose(text)
		list = append(list, names...)
		for _, at := range nounClause.FindAllIndex(text, -1) {
			list = append(list, found{`"X is what, who, how ...": returns, holds, reports`,
				line(text, at[1])})
		}
	}
	for _, at := range replacedPattern.FindAllSubmatchIndex(text, -1) {
		for i, r := range replaced {
			if at[2*i+2] >= 0 {
				list = append(list, found{fmt.Sprintf("%q: %s", r.not, r.but), line(text, at[0])})
			}
		}
	}
	return list
}

func line(text []byte, at int) int { return 1 + strings.Count(string(text[:at]), "\n") }

// prose returns Go source with zero bytes in place of all but space, comments and those strings
// that have words; and the identifiers that are limits, each once.
func prose(source []byte) (text []byte, names []found) {
	text = slices.Clone(source)
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	seen := map[string]bool{}
	for {
		pos, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return text, names
		case kind == token.COMMENT, kind == token.STRING && strings.Contains(literal, " "):
			continue
		case kind == token.SEMICOLON && literal == "\n":
			continue
		case kind == token.IDENT && limitName.MatchString(literal) && !seen[literal]:
			seen[literal] = true
			names = append(names, found{`"...Most" (a limit): max, limit`, file.Line(pos)})
		}
		at := file.Offset(pos)
		for i := range max(len(literal), 1) {
			if text[at+i] != '\n' {
				text[at+i] = 0
			}
		}
	}
}

// largest returns the keys with the largest counts.
func largest(counts map[string]int, n int) []string {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	return keys[:min(n, len(keys))]
}

// The table finds its phrases, also across lines, and no identifiers or names.
func TestLanguageFindsPhrases(t *testing.T) {
	for _, c := range []struct {
		file, text string
		lines      []int
	}{
		{"a.md", "It tells\nwhether Somebody\nhas *mended* it once more.", []int{1, 2, 3, 3}},
		{"a.md", "The tools tell us; recommended; anewer.", nil},
		{"a.go", "package a\n\n// anew is what\nconst anew = `b\nanew c` // anew\n",
			[]int{3, 3, 5, 5}},
		{"a.go", "package a\n\n// A tells\n// whether this is what\nvar who = \"nobody\"\n", []int{3}},
		{"a.go", "package a\n\nvar b int // b\n\n// C is who.\nvar C = b + maxMost + maxMost\n",
			[]int{5, 6}},
		{"a.go", "package a\n\nvar b, most, almost, Most = mostTimes, 1, 2, 3\n", []int{3}},
		{"a.go", "// Code generated by b; DO NOT EDIT.\npackage anew // anew\n", nil},
	} {
		var lines []int
		for _, f := range phrases(c.file, []byte(c.text)) {
			lines = append(lines, f.line)
		}
		slices.Sort(lines)
		if !slices.Equal(lines, c.lines) {
			t.Errorf("phrases in lines %v of %q; want %v", lines, c.text, c.lines)
		}
	}
}
