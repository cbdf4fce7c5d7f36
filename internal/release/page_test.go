package release

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/versions.md")

// pinnedRow is one line of the pinned releases.
type pinnedRow struct{ Name, Versions string }

// pageRow is one line of the tables by version of Kubernetes.
type pageRow struct {
	Minor   int
	Default Set
	Tested  string
}

// docs/versions.md is written from the table.
func TestPage(t *testing.T) {
	const page = "../../docs/versions.md"
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
			"SafeRunc":  strings.ReplaceAll(atLeast(safeRunc()), "+", ""),
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
