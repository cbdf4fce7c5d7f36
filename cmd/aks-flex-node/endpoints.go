package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/agent/support"
	"github.com/Azure/AKSFlexNode/internal/health"
)

func endpointsCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "endpoints",
		Short: "List every server that the configuration needs, and whether it answers",
		Long: `Lists every server that this configuration needs, why, through which proxy, whether it
answers, and who has issued its certificate. All are tried at once, without any
credential, for five seconds at most; one that is silent is tried once more, with small
packets. What is not needed now is needed for a change to come, such as another version.

Exit codes: 0 all that is needed now answers; 1 something does not; 2 it could not run.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, done, err := o.looking()
			if err != nil {
				return notRunError(err)
			}
			defer done()
			list, err := support.Endpoints(cmd.Context(), a, o.now(cmd))
			if err := cmp.Or(err, cmd.Context().Err()); err != nil {
				return notRunError(err)
			}
			if err := o.print(list, func(w io.Writer) { writeEndpoints(w, list) }); err != nil {
				return notRunError(err)
			}
			if slices.ContainsFunc(list, func(e health.Endpoint) bool { return e.Needed && e.Err != nil }) {
				return errFindings
			}
			return nil
		},
	}
}

func writeEndpoints(w io.Writer, list []health.Endpoint) {
	for _, e := range list {
		verdict := "answers"
		switch {
		case e.Err == nil:
		case e.Needed:
			verdict = "FAILS"
		default:
			verdict = "silent"
		}
		fmt.Fprintf(w, "%-8s %s  %s", verdict, e.URL, e.Purpose)
		if !e.Needed {
			fmt.Fprint(w, " (not needed now)")
		}
		if e.Proxy != "" {
			fmt.Fprintf(w, ", proxy %s", e.Proxy)
		}
		if e.Issuer != "" {
			fmt.Fprintf(w, ", certificate of %s", e.Issuer)
		}
		fmt.Fprintln(w)
		if e.Err != nil {
			fmt.Fprintf(w, "         %s\n", e.Err)
		}
	}
}
