package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/support"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/redact"
)

// now returns the machine's configuration, as far as its user may read it.
func (o *options) now(ctx context.Context) support.Given {
	g := support.Given{Unprivileged: os.Geteuid() != 0}
	read, err := config.Load(o.config, o.applied(ctx))
	switch {
	case err == nil:
		g.Input = new(o.inputOf(read))
	case g.Unprivileged && errors.Is(err, fs.ErrPermission):
	case errors.Is(err, fs.ErrNotExist) && !o.named:
	default:
		g.Err = err
	}
	return g
}

// examines returns a RunE for a command that lists findings about the machine, also without root.
// It exits with exitFound if one is wrong.
func examines[T any](
	o *options, look func(context.Context, *change.Agent, support.Given) ([]T, error),
	text func(io.Writer, []T), wrong func(T) bool,
) func(*cobra.Command, []string) error {
	return o.with(func(ctx context.Context, a *change.Agent, _ []string) error {
		list, err := look(ctx, a, o.now(ctx))
		err = o.show(list, cmp.Or(err, ctx.Err()), func(w io.Writer) { text(w, list) })
		return found(err, slices.ContainsFunc(list, wrong))
	})
}

func doctorCommand(o *options) *cobra.Command {
	var only, skip []string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong, the most likely cause first",
		Long: `Checks this machine, every server that the configuration needs, the credential, the
services and the Node, before, during and after a join. Reports everything that is wrong: the
most likely cause first, followed by its consequences, who can fix it, and how. It changes
nothing. Without root it checks as much as it can.

Exits with 0 when nothing is wrong, with 2 when something is, and with 1 when the checks
could not be made.`,
		PreRunE: func(*cobra.Command, []string) error {
			for _, name := range slices.Concat(only, skip) {
				if !slices.Contains(health.Names(), name) {
					return usageError("cannot check %q: the conditions are %s", name,
						strings.Join(health.Names(), ", "))
				}
			}
			return nil
		},
		RunE: examines(o, func(
			ctx context.Context, a *change.Agent, given support.Given,
		) ([]health.Diagnosis, error) {
			return support.Doctor(ctx, a, given, func(name string) bool {
				return (len(only) == 0 || slices.Contains(only, name)) && !slices.Contains(skip, name)
			}), nil
		}, writeDiagnoses, health.Diagnosis.Found),
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "check only these `conditions`")
	cmd.Flags().StringSliceVar(&skip, "skip", nil, "check all but these `conditions`")
	for _, flag := range []string{"only", "skip"} {
		complete := cobra.FixedCompletions(health.Names(), cobra.ShellCompDirectiveNoFileComp)
		_ = cmd.RegisterFlagCompletionFunc(flag, complete) // fails only for a missing flag
	}
	return cmd
}

func writeDiagnoses(w io.Writer, list []health.Diagnosis) {
	counts := make(map[string]int)
	for _, d := range list {
		counts[d.Verdict]++
		if !d.Found() {
			continue
		}
		indent := ""
		if len(d.Follows) > 0 {
			indent = "    "
		}
		fmt.Fprintf(w, "%s%-7s %s (%s)\n", indent, d.Verdict, d.Type, d.Reason)
		fmt.Fprintf(w, "%s        layer %s, owner: %s\n", indent, d.Layer, d.Owner)
		fmt.Fprintf(w, "%s        %s\n", indent, d.Message)
		for _, command := range d.Remedies {
			fmt.Fprintf(w, "%s        $ %s\n", indent, command)
		}
		if len(d.Follows) > 0 {
			fmt.Fprintf(w, "%s        follows from %s\n", indent, strings.Join(d.Follows, ", "))
		}
	}
	for _, d := range list {
		switch {
		case d.Verdict == health.Unclear:
			fmt.Fprintf(w, "unknown %s: %s\n", d.Type, d.Message)
		case d.Verdict == health.OK && d.Message != "":
			fmt.Fprintf(w, "note    %s: %s\n", d.Type, d.Message)
		}
	}
	wrong := counts[health.Fault] + counts[health.Warning]
	fmt.Fprintf(w, "%d checked: %d wrong, %d right, %d unknown; %d not applicable\n",
		len(list)-counts[health.Skipped], wrong, counts[health.OK], counts[health.Unclear],
		counts[health.Skipped])
}

func endpointsCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "endpoints",
		Short: "List every server that the configuration needs, and whether it answers",
		Long: `Lists every server that this configuration needs, the purpose, the proxy, whether the
server answers, and the issuer of its certificate. All servers are tried at the same time,
without a credential, for at most five seconds; one that does not answer is tried again with
small packets. Servers that are not needed now are needed for a later change, such as another
version.

Exits with 0 when every server that is needed now answers, and with 2 when one does not.`,
		RunE: examines(o, support.Endpoints, writeEndpoints, func(e health.Endpoint) bool {
			return e.Needed && e.Err != nil
		}),
	}
}

func writeEndpoints(w io.Writer, list []health.Endpoint) {
	for _, e := range list {
		verdict := "answers"
		switch {
		case e.Err != nil && e.Needed:
			verdict = "FAILS"
		case e.Err != nil:
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

func supportBundleCommand(o *options) *cobra.Command {
	file, within, recipient := "", 2*time.Minute, ""
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect diagnostics for support, without secrets",
		Long: `Writes a .tar.gz, readable only by its owner, with the output of doctor, endpoints and
status, the configuration, the agent's records, the journals of the services, their
configuration, and the state of the machine. Secrets are removed: those of this machine by
value, in every encoding, and everything that looks like one. manifest.json in the bundle
lists what is included, what is left out and why. Names and addresses are included.`,
		RunE: o.with(func(ctx context.Context, a *change.Agent, _ []string) error {
			var seal support.Seal
			if recipient != "" {
				var err error
				if seal, err = support.Encrypt(recipient); err != nil {
					return usageError("%w", err)
				}
			}
			if file == "" {
				name, err := os.Hostname()
				if err != nil {
					return fmt.Errorf("cannot read the host name: %w", err)
				}
				now := time.Now().UTC().Format("20060102T150405Z")
				file = fmt.Sprintf("aks-flex-node-%s-%s.tar.gz", name, now)
				if recipient != "" {
					file += ".age"
				}
			}
			given := o.now(ctx)
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			return o.bundle(file, func(out io.Writer) (redact.Manifest, error) {
				return support.SupportBundle(ctx, a, given, support.JournalLines, seal, out)
			})
		}),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the `file` to write, - for standard output")
	cmd.Flags().DurationVar(&within, "timeout", within, "maximum time to collect")
	cmd.Flags().StringVar(&recipient, "encrypt-to", "",
		"encrypt to this age `recipient` (age1...): only the holder of its identity can read the bundle")
	return cmd
}

// bundle writes a bundle to a new file, or to standard output, and reports its contents.
func (o *options) bundle(name string, write func(io.Writer) (redact.Manifest, error)) error {
	if name == "-" {
		_, err := write(o.stdout)
		return err
	}
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write the support bundle: %w", err)
	}
	manifest, err := write(out)
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	redacted := 0
	for _, n := range manifest.Redacted {
		redacted += n
	}
	_, err = fmt.Fprintf(o.out, "%s: files: %d, left out: %d, secrets removed: %d; see "+
		"manifest.json in it\n", name, len(manifest.Files), len(manifest.LeftOut), redacted)
	return err
}
