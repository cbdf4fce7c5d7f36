// Package man renders manual pages (man(7)) from Markdown. Tests of the programs generate the
// Markdown from the commands and from the configuration reference.
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

// pages holds the pages, with @DATE@ for the date.
//
//go:embed pages
var pages embed.FS

// Pages returns a program's pages by name, such as flexnode-rp.8.
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

// spare matches the paragraph macros that mandoc skips with a warning.
var spare = regexp.MustCompile(`(?m)^\.PP\n(\.(SH|SS|PP|TP)\b)`)

func render(text string, at time.Time) string {
	dated := strings.ReplaceAll(text, "@DATE@", at.UTC().Format("2006-01-02"))
	return spare.ReplaceAllString(string(md2man.Render([]byte(dated))), "$1")
}
