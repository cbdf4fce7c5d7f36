// Package man writes manual pages (man(7)): from the commands of a program, and from text. Their
// tests hold the pages beside it; `make packages` fills in the date.
package man

import (
	"fmt"
	"regexp"
	"strings"
)

// Date stands in a page where its date will be.
const Date = "@DATE@"

// Page is a manual page under construction.
type Page struct{ text strings.Builder }

// New begins a page: its name, section and title as in "unbootstrap - leave the cluster".
func New(name, section, title string) *Page {
	p := &Page{}
	p.line(`.\" Generated; change its source instead.`)
	p.line(".TH %s %s %s %q %q", strings.ToUpper(name), section, Date, "AKS Flex Node",
		map[string]string{"5": "File Formats Manual", "8": "System Manager's Manual"}[section])
	p.Section("NAME")
	p.line("%s \\- %s", escape(name), escape(title))
	return p
}

// String is the page.
func (p *Page) String() string { return p.text.String() }

func (p *Page) line(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

// Section begins a section.
func (p *Page) Section(name string) { p.line(".SH %s", escape(name)) }

// Subsection begins a subsection.
func (p *Page) Subsection(name string) { p.line(".SS %s", escape(name)) }

// Item is a term, in bold type, with what is said of it.
func (p *Page) Item(term, text string) {
	p.line(".TP\n.B %s", escape(term))
	p.flow(text)
}

// Text writes paragraphs. What is indented stands as it is.
func (p *Page) Text(text string) {
	first := true
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if !first {
			p.line(".PP")
		}
		first = false
		if strings.HasPrefix(block, "  ") {
			p.Literal(block)
		} else {
			p.flow(block)
		}
	}
}

// Literal writes lines as they are.
func (p *Page) Literal(text string) {
	p.line(".nf\n.RS 4")
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		p.line("%s", escape(line))
	}
	p.line(".RE\n.fi")
}

// width is how long the lines of a page's source are at most (mandoc's lint).
const width = 78

// ends matches the end of a sentence, after which a new line of the source begins.
var ends = regexp.MustCompile(`([.:;!?])$`)

// flow writes a paragraph in lines that fit.
func (p *Page) flow(text string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		word = escapeWord(word)
		if line != "" && (len(line)+1+len(word) > width || ends.MatchString(line)) {
			p.line("%s", guard(line))
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		p.line("%s", guard(line))
	}
}

// escape makes text of what roff would take for something else.
func escape(text string) string { return guard(escapeWord(text)) }

func escapeWord(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`,
		"\u2019", "'").Replace(text)
}

// guard keeps a line from being taken for a request.
func guard(line string) string {
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + line
	}
	return line
}
