package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/policy"
)

type shownPolicy struct {
	File   string         `json:"file"`
	Exists bool           `json:"exists"`
	Limits []policy.Limit `json:"limits"`
}

func policyCommand(o *options) *cobra.Command {
	return group("policy", "Show what a provider may do with this machine", &cobra.Command{
		Use:   "show",
		Short: "Show each limit of the machine's policy and its source",
		Long: `Shows each limit of ` + policy.File + `, its value, and whether it comes
from the file or is the default. The policy limits what a provider may do with this machine,
through a configuration URL or a flexNodeConfig that the machine follows; it does not limit a
configuration file that root has written on the machine. Only root may write the policy.
Exits with 3 when the file cannot be used; each problem is reported with its path.`,
		RunE: o.with(func(_ context.Context, a *change.Agent, _ []string) error {
			p, err := change.Policy(a)
			if err != nil {
				return exitError{exitConfig, err}
			}
			_, missing := a.ReadFile(policy.File)
			shown := shownPolicy{policy.File, !errors.Is(missing, fs.ErrNotExist), p.Limits()}
			return o.print(shown, func(w io.Writer) { writePolicy(w, shown) })
		}),
	})
}

func writePolicy(w io.Writer, shown shownPolicy) {
	if !shown.Exists {
		fmt.Fprintf(w, "%s does not exist: all limits are the defaults.\n", shown.File)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LIMIT\tVALUE\tFROM\tMEANS")
	for _, l := range shown.Limits {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", l.Name, l.Value, l.From, l.Means)
	}
	t.Flush()
}

func followCommand(o *options) *cobra.Command {
	return group("follow", "Manage how this machine follows its provider", &cobra.Command{
		Use:   "reset",
		Short: "Accept an older epoch and version from the provider",
		Long: `Forgets the epoch and the version of the configurations that were received and applied
last. A provider may not go back from them, so that an old backup of it changes nothing. After
this command it may: the next configuration is accepted, whatever its version, and later ones
may not go back from that one. The configuration must still be of the same flexNodeConfig,
and the machine's policy still applies. The node is not changed.`,
		RunE: o.with(func(ctx context.Context, a *change.Agent, _ []string) error {
			forgotten, err := change.Forget(ctx, a)
			v := map[string][]config.Resource{"forgotten": forgotten}
			return o.show(v, err, func(w io.Writer) {
				for _, r := range forgotten {
					fmt.Fprintf(w, "Forgotten: version %s of epoch %d of %s\n", r.ConfigVersion, r.Epoch, r.ID)
				}
			})
		}),
	})
}
