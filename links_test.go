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

// Every page that a program, a comment or a file names by its path is there.
func TestPagesThatAreNamedExist(t *testing.T) {
	named := regexp.MustCompile(`\bdocs/[\w./-]+\.md\b`)
	all, count := files(t), 0
	containerds := []string{"docs/hosts.md", "docs/cri/config.md"}
	for _, file := range all {
		if !slices.Contains([]string{".go", ".sh", ".py", ".tsp", ".json", ".markdown", ".yaml", ".yml",
			".txt", ".txtar", ".service", ".bicep", ".tf"}, path.Ext(file)) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range named.FindAllString(string(text), -1) {
			count++
			if !slices.Contains(all, page) && !slices.Contains(containerds, page) {
				t.Errorf("%s names %s, which is not there", file, page)
			}
		}
	}
	if count < 60 {
		t.Errorf("only %d paths of pages were found", count)
	}
}

// A configuration URL is a secret: nothing that people read or run gives it as an argument, which
// sudo's log and a shell's history keep (E11).
func TestNoURLIsAnArgument(t *testing.T) {
	given := regexp.MustCompile(`--config-url["']?[ ,=]+["']?[^-\s]`)
	said := 0
	for _, file := range files(t) {
		if ext := path.Ext(file); !slices.Contains([]string{
			".md", ".markdown", ".sh", ".py", ".yaml", ".yml", ".go", ".json", ".service"}, ext) ||
			strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "docs/decisions/") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said += strings.Count(string(text), "--config-url-file")
		for _, line := range strings.Split(string(text), "\n") {
			allowed := strings.Contains(line, "and warns") || strings.HasPrefix(file, "cmd/") ||
				strings.HasPrefix(line, "**--config-url URL**") // the manual page
			if given.MatchString(line) && !allowed {
				t.Errorf("%s: %s", file, line)
			}
		}
	}
	if said < 8 {
		t.Errorf("--config-url-file is found %d times", said)
	}
}
