// Package pagetest writes the Markdown of which manual pages are made: from the commands of a
// program, and from text. Tests compare it with the pages that are kept in packaging/man/pages.
package pagetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Page is a manual page under construction.
type Page struct {
	file string
	text strings.Builder
}

// New begins a page: its name, section and title as in "unbootstrap - leave the cluster".
func New(name, section, title string) *Page {
	p := &Page{file: name + "." + section + ".markdown"}
	p.line("%% %q %q \"@DATE@\" \"AKS Flex Node\" %q", strings.ToUpper(name), section,
		map[string]string{"5": "File Formats Manual", "8": "System Manager's Manual"}[section])
	p.Section("NAME")
	p.line("\n%s \\- %s", escape(name), escape(title))
	return p
}

// Check compares a page with the one that is kept below the project's directory, or writes that.
func (p *Page) Check(t *testing.T, project string, update bool) {
	t.Helper()
	file := filepath.Join(project, "packaging/man/pages", p.file)
	if update {
		if err := os.WriteFile(file, []byte(p.text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != p.text.String() {
		t.Errorf("%s is out of date: run `make golden`", file)
	}
}

func (p *Page) line(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

// Section begins a section.
func (p *Page) Section(name string) { p.line("\n# %s", escape(name)) }

// Subsection begins a subsection.
func (p *Page) Subsection(name string) { p.line("\n### %s", escape(name)) }

// Item is a term, in bold type, with what is said of it.
func (p *Page) Item(term, text string) {
	p.line("\n**%s**\n:   %s", escape(term), strings.TrimSpace(flow(text, "    ")))
}

// Text writes paragraphs. What is indented stands as it is.
func (p *Page) Text(text string) {
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.HasPrefix(block, "  ") {
			p.Literal(block)
		} else {
			p.line("\n%s", flow(block, ""))
		}
	}
}

// Literal writes lines as they are.
func (p *Page) Literal(text string) {
	p.line("\n```\n%s\n```", strings.Trim(text, "\n"))
}

// width is the maximum length of the lines of a page; the markup that is made of them is longer.
const width = 68

// flow writes a paragraph in lines that fit, all of them indented.
func flow(text, indent string) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		word = escape(word)
		if line != "" && (len(line)+1+len(word) > width || strings.ContainsAny(line[len(line)-1:],
			".:;!?")) { // a new sentence begins a new line
			lines = append(lines, indent+guard(line))
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return strings.Join(append(lines, indent+guard(line)), "\n")
}

// escape makes text of what Markdown would take for something else.
func escape(text string) string {
	var out strings.Builder
	for _, r := range strings.ReplaceAll(text, "\u2019", "'") {
		if strings.ContainsRune("\\`*_{}[]()#<>|&~", r) {
			out.WriteByte('\\')
		}
		out.WriteRune(r)
	}
	return out.String()
}

// guard keeps a line from being taken for an item of a list or a term's definition.
func guard(line string) string {
	if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") || strings.HasPrefix(line, ":") {
		return `\` + line
	}
	return line
}
