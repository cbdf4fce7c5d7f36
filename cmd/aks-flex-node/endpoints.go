package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/agent/support"
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
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, done, err := o.looking()
			if err != nil {
				return notRunError{err}
			}
			defer done()
			list, err := support.Endpoints(cmd.Context(), a, o.now(cmd))
			if err := cmp.Or(err, cmd.Context().Err()); err != nil {
				return notRunError{err}
			}
			answers := support.Answers(list)
			if err := o.print(answers, func(w io.Writer) { writeEndpoints(w, answers) }); err != nil {
				return notRunError{err}
			}
			if slices.ContainsFunc(answers, func(a support.Answer) bool { return a.Needed && !a.Answers }) {
				return errFindings
			}
			return nil
		},
	}
}

func writeEndpoints(w io.Writer, answers []support.Answer) {
	for _, a := range answers {
		verdict := "answers"
		switch {
		case a.Answers:
		case a.Needed:
			verdict = "FAILS"
		default:
			verdict = "silent"
		}
		fmt.Fprintf(w, "%-8s %s  %s", verdict, a.URL, a.Purpose)
		if !a.Needed {
			fmt.Fprint(w, " (not needed now)")
		}
		if a.Proxy != "" {
			fmt.Fprintf(w, ", proxy %s", a.Proxy)
		}
		if a.Issuer != "" {
			fmt.Fprintf(w, ", certificate of %s", a.Issuer)
		}
		fmt.Fprintln(w)
		if !a.Answers {
			fmt.Fprintf(w, "         %s\n", a.Error)
		}
	}
}
