package release

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/reference/versions.md")

// pinnedRow is one line of the pinned releases.
type pinnedRow struct{ Name, Versions string }

// pageRow is a line of the tables by Kubernetes version.
type pageRow struct {
	Minor   int
	Default Set
	Tested  string
}

// flawRow is a line of the known flaws, supportRow of the ends of support.
type (
	flawRow    struct{ Name, IDs, Published, Source, Since, Fixed string }
	supportRow struct{ Branch, Day string }
)

func flawRows() []flawRow {
	var list []flawRow
	for _, f := range flaws() {
		since := "every one"
		if f.Since != (Version{}) {
			since = f.Since.String() + "+"
		}
		list = append(list, flawRow{f.Name, f.IDs, f.Published, f.Source, since, atLeast(f.Fixed)})
	}
	return list
}

func supportRows() []supportRow {
	var list []supportRow
	for _, branch := range slices.Sorted(maps.Keys(support)) {
		list = append(list, supportRow{branch, support[branch]})
	}
	return list
}

// docs/reference/versions.md is generated from the table.
func TestPage(t *testing.T) {
	const page = "../../docs/reference/versions.md"
	var list []pageRow
	for _, r := range rows() {
		s := Set{Kubernetes: fmt.Sprintf("1.%d.0", r.minor)}.Filled()
		list = append(list, pageRow{r.minor, s, atLeast(r.tested)})
	}
	var pinned []pinnedRow
	for _, name := range Names() {
		pinned = append(pinned, pinnedRow{name, strings.Join(Pinned(name), ", ")})
	}
	var text bytes.Buffer
	err := template.Must(template.ParseFiles("testdata/versions.md.tmpl")).Execute(&text,
		map[string]any{
			"Rows": list, "Pinned": pinned, "MaxSkew": MaxSkew, "Oldest": OldestMinor(),
			"Newest": NewestMinor(), "NoContainerd1": LastMinorContainerd1 + 1,
			"Flaws": flawRows(), "Support": supportRows(),
			"OldestCNI": OldestCNI(),
		})
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(page, text.Bytes(), 0o644); err != nil {
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
