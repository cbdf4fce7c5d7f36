package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/service"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

func keys(settings *string) *cobra.Command {
	parent := &cobra.Command{
		Use: "keys", Short: "Create and rotate the keys that seal secrets and sign revisions",
		Long: `Create and rotate the keys that seal secrets and sign URLs and revisions.

  flexnode-rp keys init FILE        once, before the first start

This also creates the root key, in root-key.pem beside FILE. Move that file to a place
that is not online, and keep it: the root key certifies the keys in FILE, and each
machine trusts the root key of its first configuration URL. It is needed for "keys add",
and for "keys init" if FILE is lost (--root). A key is certified for two years.
"keys status" shows the end of that time; rotate the key before. A machine continues to
follow with an expired certificate, and reports it.

To rotate the key, run these steps in this order; the provider keeps running. If each
replica has its own file, run add, promote and drop on one and copy the file to the others:

  1. flexnode-rp keys add FILE      the new key is known, and seals nothing yet
  2. restart every replica          now each can open what the new key will seal
  3. flexnode-rp keys promote FILE  the new key seals and signs from the next start on;
                                    refused while a replica has not read it
  4. restart every replica          now none seals with the old key
  5. flexnode-rp keys rewrap        secrets that the old key has sealed are sealed again
  6. flexnode-rp keys drop FILE     refused while anything is sealed with the old key,
                                    or a replica seals with it
  7. restart every replica

Between steps 4 and 6 wait 24 hours, or ask owners to request their configuration URLs
again: URLs that the old key has signed become invalid when it is dropped.`,
	}
	parent.AddCommand(
		keysFile("init FILE", "Create the file with the first key", "made", seal.Init),
		keysFile("add FILE", "Add a new key after the others", "added", seal.Add),
		keysPromote(settings), keysRewrap(settings), keysDrop(settings), keysStatus(settings),
	)
	return parent
}

func keysFile(
	use, short, done string, change func(path, root string, now time.Time) (seal.Ring, error),
) *cobra.Command {
	root := ""
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ring, err := change(args[0], cmp.Or(root, seal.RootFile(args[0])), time.Now())
			return printChange(cmd, done, ring, err)
		},
	}
	cmd.Flags().StringVar(&root, "root", "",
		"`file` with the root key (default root-key.pem beside FILE)")
	return cmd
}

func printChange(cmd *cobra.Command, done string, ring seal.Ring, err error) error {
	if err != nil {
		return err
	}
	key := ring.Keys[0].ID
	if done == "added" {
		key = ring.Keys[len(ring.Keys)-1].ID
	}
	fmt.Fprintf(cmd.OutOrStdout(), "key %s %s; %s seals and signs\n", key, done, ring.Keys[0].ID)
	return nil
}

func keysPromote(settings *string) *cobra.Command {
	return keysOnceRead(settings, cobra.Command{
		Use: "promote FILE", Short: "Put the newest key first", Args: cobra.ExactArgs(1),
		Long: `Put the newest key first. Refused while a running process of the provider has not
read that key: restart it first.`,
	}, "promote a key", func(ring seal.Ring, read []string) bool {
		return slices.Contains(read, ring.Keys[len(ring.Keys)-1].ID)
	}, func(cmd *cobra.Command, _ *store.Store, path string) error {
		ring, err := seal.Promote(path)
		return printChange(cmd, "promoted", ring, err)
	})
}

func keysDrop(settings *string) *cobra.Command {
	return keysOnceRead(settings, cobra.Command{
		Use: "drop FILE", Short: "Remove every key but the first", Args: cobra.ExactArgs(1),
		Long: `Remove every key but the first. Refused while anything in the store is sealed with
another key: run "keys rewrap" first. Also refused while a running process of the
provider seals with another key: restart it first.`,
	}, "drop the older keys", func(ring seal.Ring, read []string) bool {
		return len(read) > 0 && read[0] == ring.Keys[0].ID
	}, func(cmd *cobra.Command, st *store.Store, path string) error {
		boxes, err := credential.Boxes(cmd.Context(), st)
		if err != nil {
			return err
		}
		ring, err := seal.Drop(path, boxes)
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "key %s is the only one\n", ring.Keys[0].ID)
		}
		return err
	})
}

// keysOnceRead returns a command that changes the file with the keys, once every live process has
// read the required keys.
func keysOnceRead(
	settings *string, c cobra.Command, what string, are func(ring seal.Ring, read []string) bool,
	change func(cmd *cobra.Command, st *store.Store, path string) error,
) *cobra.Command {
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return withStore(cmd.Context(), *settings, func(st *store.Store, _ seal.Ring) error {
			ring, err := seal.Load(args[0])
			var old []string
			if err == nil {
				old, err = st.Lacking(cmd.Context(), func(p store.Process) bool { return are(ring, p.Keys) })
			}
			if err == nil && len(old) > 0 {
				err = fmt.Errorf("restart the processes that have not read the file since it changed: %s",
					strings.Join(old, ", "))
			}
			if err != nil {
				return fmt.Errorf("cannot %s: %w", what, err)
			}
			return change(cmd, st, args[0])
		})
	}
	return &c
}

func keysRewrap(settings *string) *cobra.Command {
	accept := false
	cmd := &cobra.Command{
		Use: "rewrap", Args: cobra.NoArgs,
		Short: "Seal and sign again what is sealed or signed with an older key",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd.Context(), *settings, func(st *store.Store, ring seal.Ring) error {
				n, err := credential.Rewrap(cmd.Context(), st, ring)
				rows, failed := credential.SignAgain(cmd.Context(), st, ring, time.Now(), accept)
				fmt.Fprintf(cmd.OutOrStdout(), "%d boxes sealed again with %s, %d rows signed\n",
					n, ring.Keys[0].ID, rows)
				return errors.Join(err, failed)
			})
		},
	}
	cmd.Flags().BoolVar(&accept, "accept-store", false, "also sign rows that no key of the file "+
		"has signed, after the keys were lost; only if no other program could write to the store")
	return cmd
}

func keysStatus(settings *string) *cobra.Command {
	return &cobra.Command{
		Use: "status", Args: cobra.NoArgs,
		Short: "Show the keys, what is sealed with each, and which processes have read them",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd.Context(), *settings, func(st *store.Store, ring seal.Ring) error {
				return printKeys(cmd.Context(), cmd.OutOrStdout(), st, ring)
			})
		},
	}
}

// printKeys lists the keys of a ring and those that it lacks, with the number of boxes of each.
func printKeys(ctx context.Context, out io.Writer, st *store.Store, ring seal.Ring) error {
	boxes, err := credential.Boxes(ctx, st)
	if err != nil {
		return err
	}
	for i, key := range ring.Keys {
		role := "opens"
		if i == 0 {
			role = "seals and signs"
		}
		until, err := ring.Certified(key.ID)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s  %d boxes  %s, certified until %s\n", key.ID, boxes[key.ID], role,
			until.Format(time.DateOnly))
		delete(boxes, key.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(boxes)) {
		fmt.Fprintf(out, "%s  %d boxes  NOT IN THE FILE: they cannot be opened\n", id, boxes[id])
	}
	processes, _, err := st.Processes.List(ctx, "")
	for _, row := range processes {
		p := row.Value
		fmt.Fprintf(out, "%s  %s %s  %s\n", row.Key, p.Role, p.Version, strings.Join(p.Keys, " "))
	}
	return err
}

// withStore runs work on the rows of a running provider's store, with the keys.
func withStore(
	ctx context.Context, settings string, work func(*store.Store, seal.Ring) error,
) error {
	return withEtcd(settings, func(s service.Settings, e *store.Etcd) error {
		ring, err := seal.Load(s.KeysFile)
		if err != nil {
			return err
		}
		st := store.New(e)
		if err := st.HoldSchema(ctx); err != nil {
			return err
		}
		if !st.HasSchema() {
			return errors.New("the store has no rows of this release: run `flexnode-rp serve` first")
		}
		return work(st, ring)
	})
}
