// Package man makes manual pages (man(7)) of the Markdown in which they are kept. Tests of the
// programs write that from the commands, and from the reference of the configuration.
package man

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// Each page has @DATE@ in the place of its date.
//
//go:embed pages
var pages embed.FS

// Pages returns the pages of a program by their names, such as flexnode-rp.8.
func Pages(program string, at time.Time) (map[string]string, error) {
	found, err := fs.Glob(pages, "pages/"+program+"[.\\-]*.markdown")
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("cannot find a manual page of %s", program)
	}
	made := map[string]string{}
	for _, file := range found {
		var text []byte
		if text, err = pages.ReadFile(file); err != nil {
			break
		}
		made[strings.TrimSuffix(path.Base(file), ".markdown")] = render(string(text), at)
	}
	return made, err
}

// spare are the macros before which mandoc skips a paragraph.
var spare = regexp.MustCompile(`(?m)^\.PP\n(\.(SH|SS|PP|TP)\b)`)

func render(text string, at time.Time) string {
	dated := strings.ReplaceAll(text, "@DATE@", at.UTC().Format("2006-01-02"))
	return spare.ReplaceAllString(string(md2man.Render([]byte(dated))), "$1")
}
