package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/pagetest"
)

var update = flag.Bool("update", false, "write the manual page")

// The manual page has the help of the commands.
func TestManualPage(t *testing.T) {
	page := pagetest.Program(newRoot(),
		pagetest.Part{Name: "FILES", Items: [][2]string{
			{"/etc/flexnode-rp/settings.json",
				"The settings, which docs/reference/provider-settings.md describes."},
			{"/etc/flexnode-rp/keys.json", "The keys that secrets in the store are sealed with. Without " +
				"them they cannot be read: keep a copy elsewhere."},
			{"/var/lib/flexnode-rp/", "The store, where it is inside the process."},
		}},
		pagetest.Part{Name: "SEE ALSO", Text: "aks-flex-node(8), systemctl(1), journalctl(1)"},
	)
	page.Check(t, "../..", *update)
}

// The reference has every command.
func TestCommandsAreDocumented(t *testing.T) {
	page := must(os.ReadFile("../../docs/reference/cli.md"))
	_, part, _ := strings.Cut(string(page), "\n## flexnode-rp\n")
	for _, cmd := range newRoot().Commands() {
		if !strings.Contains(part, "`"+cmd.Name()) {
			t.Errorf("docs/reference/cli.md lacks the command %s", cmd.Name())
		}
	}
}
