package pagetest

import (
	"strings"

	"github.com/spf13/cobra"
)

// Part is a section that follows the commands: items, or text.
type Part struct {
	Name, Text string
	Items      [][2]string
}

// Program is the page of a program: what its commands say of themselves, and more parts.
func Program(root *cobra.Command, parts ...Part) *Page {
	root.InitDefaultHelpFlag()
	name := root.Name()
	p := New(name, "8", lower(root.Short))
	p.Section("SYNOPSIS")
	p.line("\n**%s** *command* \\[*options*\\]", escape(name))
	p.Section("DESCRIPTION")
	p.Text(root.Long)
	p.Section("COMMANDS")
	for _, c := range root.Commands() {
		p.command(c)
	}
	p.Section("OPTIONS")
	p.Text("Every command has these:")
	p.flags(root.PersistentFlags().FlagUsages())
	for _, part := range parts {
		p.Section(part.Name)
		if part.Text != "" {
			p.Text(part.Text)
		}
		for _, item := range part.Items {
			p.Item(item[0], item[1])
		}
	}
	return p
}

// command writes a command and those below it.
func (p *Page) command(c *cobra.Command) {
	if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
		return
	}
	if c.Runnable() {
		p.Subsection(strings.TrimSuffix(c.UseLine(), " [flags]"))
		text := c.Long
		if text == "" {
			text = c.Short + "."
		}
		p.Text(text)
		p.flags(c.LocalNonPersistentFlags().FlagUsages())
	}
	for _, below := range c.Commands() {
		p.command(below)
	}
}

// flags writes options as cobra describes them, one a line.
func (p *Page) flags(usages string) {
	for line := range strings.Lines(usages) {
		term, usage, _ := strings.Cut(strings.TrimSpace(line), "   ")
		if !strings.Contains(term, "--help") {
			p.Item(term, strings.TrimSpace(usage))
		}
	}
}

// lower makes the first word of a title begin with a small letter, unless it is an abbreviation.
func lower(title string) string {
	if len(title) > 1 && title[1] >= 'a' {
		return strings.ToLower(title[:1]) + title[1:]
	}
	return title
}
