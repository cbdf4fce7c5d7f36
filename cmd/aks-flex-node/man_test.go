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
			{"1", "Failed. The message says what is wrong and, if known, what to do."},
			{"2", "plan, drift, diff: there are differences. status, doctor, endpoints: something is " +
				"wrong. agent, bootstrap: the machine has joined, but its pods cannot reach Services."},
			{"3", "The configuration or the command line is wrong. Trying again does not help."},
			{"4", "This machine is not a node."},
		}},
		pagetest.Part{Name: "ENVIRONMENT", Items: [][2]string{
			{"HTTPS_PROXY, HTTP_PROXY, NO_PROXY", "The proxy for fetching a configuration URL. " +
				"Everything else uses the proxy in the configuration."},
			{"AKS_FLEX_NODE_REMOVE", "With the value keep, the package can be removed from a node, " +
				"which is left unchanged."},
		}},
		pagetest.Part{Name: "FILES", Items: [][2]string{
			{defaultConfig, "The configuration. See aks-flex-node-config.json(5)."},
			{policy.File, "What a provider may do on this machine. See `aks-flex-node policy show`."},
			{"/var/lib/aks-flex-node/", "The state of the agent: the applied node, and the previous " +
				"state of the machine."},
			{"/var/log/aks-flex-node/aks-flex-node.log", "The log."},
			{"/run/aks-flex-node/status.json", "The status of the node."},
			{"/opt/aks-flex-node/store/", "Downloaded files, by digest."},
		}},
		pagetest.Part{Name: "SEE ALSO",
			Text: "aks-flex-node-config.json(5), systemctl(1), journalctl(1)"},
	)
	page.Check(t, "../..", *update)
}
