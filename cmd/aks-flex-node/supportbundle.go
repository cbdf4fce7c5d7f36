package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/agent/support"
	"github.com/Azure/AKSFlexNode/internal/redact"
)

func supportBundleCommand(o *options) *cobra.Command {
	file, within, recipient := "", 2*time.Minute, ""
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect diagnostics for support, without secrets",
		Long: `Writes a .tar.gz, readable by its owner alone, with what doctor, endpoints and status
say, the configuration, the records of the agent, the journals of the services, their
configuration and how the machine is. Secrets are taken out: those of this machine by
their values, in every encoding, and what looks like one. manifest.json in it says what
is there, what is not and why. Names and addresses are in it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			seal, err := sealFor(recipient)
			if err != nil {
				return usageError("%w", err)
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
			a, done, err := o.agent(nil)
			if err != nil {
				return err
			}
			defer done()
			ctx, cancel := context.WithTimeout(cmd.Context(), within)
			defer cancel()
			given := o.now(cmd)
			return o.bundle(file, func(out io.Writer) (redact.Manifest, error) {
				sealed, err := seal(out)
				if err != nil {
					return redact.Manifest{}, err
				}
				manifest, err := support.SupportBundle(ctx, a, given, support.JournalLines, sealed)
				return manifest, errors.Join(err, sealed.Close())
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the `file` to write, - for standard output")
	cmd.Flags().DurationVar(&within, "timeout", within, "how long to collect")
	cmd.Flags().StringVar(&recipient, "encrypt-to", "",
		"encrypt for this `recipient` of age (age1...): only who has its identity can read it")
	return cmd
}

// sealFor encrypts for a recipient of age; for none it writes what it is given.
func sealFor(recipient string) (func(io.Writer) (io.WriteCloser, error), error) {
	if recipient == "" {
		return func(w io.Writer) (io.WriteCloser, error) { return plain{w}, nil }, nil
	}
	return support.Encrypt(recipient)
}

// plain writes without encrypting.
type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// bundle writes a bundle to a new file, or to standard output, and tells what is in it.
func (o *options) bundle(
	name string, write func(io.Writer) (redact.Manifest, error),
) (err error) {
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
	_, err = fmt.Fprintf(o.out, "%s: files: %d, left out: %d, secrets taken out: %d; see "+
		"manifest.json in it\n", name, len(manifest.Files), len(manifest.LeftOut), redacted)
	return err
}
