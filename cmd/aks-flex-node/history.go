package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/history"
)

func historyCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "history",
		Short: "List the generations of this machine and the rejected configurations",
		Long: `Lists the generations of this machine, newest first: when each one was proved healthy,
where its configuration came from, which version of aks-flex-node rendered it, and its state:

  applied   proved healthy, and running now
  previous  proved healthy before that; ` + "`rollback`" + ` to it needs no network
  kept      proved healthy earlier, and still kept
  changing  being applied now
  received  delivered by the provider and not tried yet
  rejected  failed, or held back after a rollback; with the reason`,
		RunE: o.with(func(ctx context.Context, a *change.Agent, _ []string) error {
			past, err := inspect.History(ctx, &a.Env)
			return o.show(past, err, func(w io.Writer) { writeHistory(w, past) })
		}),
	}
}

func (o *options) completeGenerations(
	cmd *cobra.Command, _ []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	past, err := inspect.History(cmd.Context(), onlyReads())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, p := range past {
		if p.Generation != "" {
			names = append(names, fmt.Sprintf("%.12s\t%s", p.Generation, p.State))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func writeHistory(w io.Writer, past []history.Past) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GENERATION\tWHEN\tFROM\tKUBERNETES\tAGENT\tSTATE")
	for _, p := range past {
		when := "-"
		if p.At != nil {
			when = moment(*p.At)
		}
		state := p.State
		if p.Reason != "" {
			state += ": " + p.Reason
		}
		fmt.Fprintf(t, "%.12s\t%s\t%s\t%s\t%s\t%s\n", cmp.Or(p.Generation, "-"), when, origin(p),
			cmp.Or(p.Kubernetes, "-"), cmp.Or(p.Agent, "-"), state)
	}
	t.Flush()
}

func origin(p history.Past) string {
	switch {
	case p.Version != "":
		return "flexNodeConfig " + p.Version
	case p.Origin == "url":
		return "flexNodeConfig"
	}
	return cmp.Or(p.Origin, "-")
}

func diffCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "diff [FROM] [TO]",
		Short: "Show the differences between two generations",
		Long: `Shows the settings in which two generations differ, and what a change from one to the
other does to the machine. Each is applied, previous, live, or the first letters of an id as
` + "`history`" + ` shows it. Without arguments it compares the previous generation with the applied
one; with one argument, that one with the applied one. Secrets are redacted. Exits with 2
when there is a difference.`,
		Args: cobra.MaximumNArgs(2), ValidArgsFunction: o.completeGenerations,
		RunE: o.with(func(ctx context.Context, a *change.Agent, args []string) error {
			args = append(args, "", "") // in place of missing ones
			c, err := inspect.Compare(ctx, &a.Env, args[0], args[1])
			err = o.show(c, err, func(w io.Writer) { writeComparison(w, c) })
			return found(err, len(c.Config)+len(c.Changes) > 0)
		}),
	}
}

func writeComparison(w io.Writer, c history.Comparison) {
	fmt.Fprintf(w, "from %.12s to %.12s\n", c.From, c.To)
	for i, d := range c.Config {
		row(w, "settings", i == 0, difference(d))
	}
	writePlan(w, inspect.Report{Changes: c.Changes})
	if len(c.Config)+len(c.Changes) == 0 {
		fmt.Fprintln(w, "no difference")
	}
}

func difference(d config.Difference) string {
	unset := "not set"
	return d.Path + ": " + *cmp.Or(d.To, &unset) + " (was " + *cmp.Or(d.From, &unset) + ")"
}

func rollbackCommand(o *options) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:   "rollback [GENERATION]",
		Short: "Go back to a previous generation that was healthy",
		Long: `Restores the previous generation, or another one that is kept (see ` + "`history`" + `), as
it was rendered then. Like every change, a rollback must pass the health gate, and is undone
if it does not. The node is drained first when the minor version of Kubernetes changes. The
previous generation needs no network; artifacts of older ones may have to be downloaded again,
and nothing is changed if that fails.

The configuration that is replaced is held back: neither the service nor its provider applies
it again until its content changes or ` + "`bootstrap`" + ` is run. The provider receives the
reason.

A rollback that was interrupted is finished by the same command, or by the service.

Asks for confirmation at a terminal; elsewhere it needs --yes.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: o.completeGenerations,
		RunE: o.with(func(ctx context.Context, a *change.Agent, args []string) error {
			name := append(args, "")[0]
			if !yes {
				c, err := change.Back(ctx, a, name)
				if err != nil {
					return err
				}
				show := func() { writeComparison(o.err, c) }
				if err := o.ask(ctx, a, "Roll back?", show); err != nil {
					return err
				}
			}
			result, err := change.Rollback(ctx, a, name)
			return o.printResult(result, err, "Node %s is rolled back (%s, %.1f s)\n")
		}),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func (o *options) ask(ctx context.Context, a *change.Agent, question string, show func()) error {
	if !a.Person.Terminal {
		return usageError("cannot ask for confirmation without a terminal: use --yes")
	}
	show()
	return confirmed(ctx, o.err, os.Stdin, question)
}

func confirmed(ctx context.Context, out io.Writer, in io.Reader, question string) error {
	fmt.Fprint(out, question, " [y/N] ")
	typed := make(chan string, 1)
	go func() { // an interrupt ends the process, which may read until then
		line, _ := bufio.NewReader(in).ReadString('\n') // end of input means no
		typed <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(out)
	case answer := <-typed:
		if answer == "y" || answer == "yes" {
			return nil
		}
	}
	return errNotConfirmed
}

var errNotConfirmed = errors.New("nothing was changed")
