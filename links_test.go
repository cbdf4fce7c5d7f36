package flexnode

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// elsewhere are directories whose files are not pages of ours.
var elsewhere = []string{".git", "node_modules", "bin", "out"}

// files lists the paths of the repository.
func files(t *testing.T) []string {
	t.Helper()
	var list []string
	err := fs.WalkDir(os.DirFS("."), ".", func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains(elsewhere, d.Name()) {
			return fs.SkipDir
		}
		list = append(list, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Two paths that differ in case only are one on macOS and Windows.
func TestPathsDifferInMoreThanCase(t *testing.T) {
	seen := map[string]string{}
	for _, file := range files(t) {
		lower := strings.ToLower(file)
		if other, ok := seen[lower]; ok {
			t.Errorf("%s and %s", other, file)
		}
		seen[lower] = file
	}
}

var (
	fences  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	links   = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	marks   = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// headings are the anchors of a page, as GitHub makes them.
func headings(text string) []string {
	var list []string
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		title := links.ReplaceAllStringFunc(h[1], func(s string) string {
			return s[1:strings.Index(s, "](")]
		})
		title = marks.ReplaceAllString(strings.ToLower(title), "")
		list = append(list, strings.ReplaceAll(title, " ", "-"))
	}
	return list
}

// Every link between pages leads to a file, in its spelling, and to a heading.
func TestLinksResolve(t *testing.T) {
	all, count := files(t), 0
	pages := map[string]string{}
	for _, file := range all {
		if path.Ext(file) != ".md" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pages[file] = fences.ReplaceAllString(string(text), "")
	}
	for page, text := range pages {
		for _, link := range links.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(target, ":") {
				continue // somewhere else
			}
			count++
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
			}
			if !slices.Contains(all, file) {
				t.Errorf("%s: there is no %s", page, link[1])
			} else if anchor != "" && !slices.Contains(headings(pages[file]), anchor) {
				t.Errorf("%s: there is no heading %s", page, link[1])
			}
		}
	}
	if len(pages) < 60 || count < 120 {
		t.Errorf("only %d links in %d pages were found", count, len(pages))
	}
}

// A configuration URL is a secret: no page and no script has it written on a command line, which
// sudo, the shell and the list of processes keep.
func TestURLIsOnNoCommandLine(t *testing.T) {
	argument := regexp.MustCompile(`agent --config-url +[^- ]`)
	for _, file := range files(t) {
		if !slices.Contains([]string{".md", ".sh", ".py"}, path.Ext(file)) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := argument.Find(text); found != nil {
			t.Errorf("%s has %s: give it by --config-url -", file, found)
		}
	}
}
