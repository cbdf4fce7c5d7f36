package main

import (
	"flag"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/pagetest"
	"github.com/Azure/AKSFlexNode/internal/policy"
)

var update = flag.Bool("update", false, "write the manual page")

// The manual page says what the commands say of themselves.
func TestManualPage(t *testing.T) {
	page := pagetest.Program(newRoot(&options{}),
		pagetest.Part{Name: "EXIT STATUS", Items: [][2]string{
			{"0", "Done."},
			{"1", "Failed; the message says what and, when it is known, what to do."},
			{"2", "plan, drift, diff: something differs; status, doctor, endpoints: something is " +
				"wrong; agent, bootstrap: the machine has joined, and its pods reach no Services."},
			{"3", "The configuration or the command line is wrong; trying again does not help."},
		}},
		pagetest.Part{Name: "ENVIRONMENT", Items: [][2]string{
			{"HTTPS_PROXY, HTTP_PROXY, NO_PROXY", "The way to a configuration URL. All else has its " +
				"proxy from the configuration."},
			{"AKS_FLEX_NODE_REMOVE", "With the value keep, the package can be removed from a machine " +
				"that is a node, which stays as it is."},
		}},
		pagetest.Part{Name: "FILES", Items: [][2]string{
			{defaultConfig, "The configuration. See aks-flex-node-config.json(5)."},
			{policy.File, "What a provider may do with this machine. See policy show."},
			{"/var/lib/aks-flex-node/", "What the agent remembers: the node as it was applied, and what " +
				"the machine was before."},
			{"/var/log/aks-flex-node/aks-flex-node.log", "The log."},
			{"/run/aks-flex-node/status.json", "How the node is."},
			{"/opt/aks-flex-node/store/", "What was downloaded, by digest."},
		}},
		pagetest.Part{Name: "SEE ALSO",
			Text: "aks-flex-node-config.json(5), systemctl(1), journalctl(1)"},
	)
	page.Check(t, "../..", *update)
}
