package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

// endpointFile holds the URL of the simulated Azure; the real azcmagent has its endpoints built in.
const endpointFile = "/etc/azuresim/endpoint"

const arcVersion = "1.62.0-azuresim"

// newAzcmagent returns a stand-in for the Arc agent's command line, with those of the real one's
// flags that are used.
func newAzcmagent() *cobra.Command {
	root := &cobra.Command{Use: "azcmagent",
		Short: "A stand-in for the Azure Connected Machine agent", SilenceUsage: true,
		SilenceErrors: true}
	root.AddCommand(connectCommand(), showCommand(), disconnectCommand(), configCommand(),
		&cobra.Command{
			Use: "version", Args: cobra.NoArgs,
			Run: func(*cobra.Command, []string) { fmt.Println("azcmagent version", arcVersion) },
		})
	return root
}

func machine() (azuresim.ConnectedMachine, error) {
	text, err := os.ReadFile(endpointFile)
	if err != nil {
		return azuresim.ConnectedMachine{}, fmt.Errorf("cannot read the address of Azure: %w", err)
	}
	return azuresim.ConnectedMachine{Endpoint: strings.TrimSpace(string(text))}, nil
}

// fromFile sets flags from a --config file: a JSON object whose keys are flag names. Without a path
// it does nothing.
func fromFile(cmd *cobra.Command, path string) error {
	if path == "" {
		return nil
	}
	var values map[string]any
	if err := readJSON(path, &values); err != nil {
		return err
	}
	for name, value := range values {
		if cmd.Flags().Lookup(name) == nil {
			return fmt.Errorf("unknown flag in %s: %s", path, name)
		}
		if err := cmd.Flags().Set(name, fmt.Sprint(value)); err != nil {
			return err
		}
	}
	return nil
}

func connectCommand() *cobra.Command {
	var c azuresim.Connection
	config, tags := "", ""
	cmd := &cobra.Command{
		Use: "connect", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromFile(cmd, config); err != nil {
				return err
			}
			if c.AccessToken == "" || c.ResourceName == "" || c.ResourceGroup == "" ||
				c.SubscriptionID == "" || c.Location == "" {
				return errors.New("AZCM0003: access-token, resource-name, resource-group, " +
					"subscription-id and location are required")
			}
			for pair := range strings.SplitSeq(tags, ",") {
				if key, value, ok := strings.Cut(pair, "="); ok {
					if c.Tags == nil {
						c.Tags = map[string]string{}
					}
					c.Tags[key] = value
				}
			}
			m, err := machine()
			if err != nil {
				return err
			}
			return m.Connect(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&c.SubscriptionID, "subscription-id", "s", "", "")
	f.StringVarP(&c.ResourceGroup, "resource-group", "g", "", "")
	f.StringVarP(&c.TenantID, "tenant-id", "t", "", "")
	f.StringVarP(&c.Location, "location", "l", "", "")
	f.StringVarP(&c.ResourceName, "resource-name", "n", "", "")
	f.StringVar(&c.AccessToken, "access-token", "", "")
	f.StringVar(&tags, "tags", "", "")
	f.StringVar(&config, "config", "", "")
	f.String("cloud", "AzureCloud", "")
	return cmd
}

func showCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "show", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := machine()
			if err != nil {
				return err
			}
			c, _ := m.Show()
			status := m.Status(cmd.Context())
			if asJSON {
				return json.NewEncoder(os.Stdout).Encode(map[string]any{
					"status": status, "agentVersion": arcVersion, "resourceName": c.ResourceName,
					"resourceGroup":  c.ResourceGroup,
					"subscriptionId": c.SubscriptionID, "tenantId": c.TenantID,
					"location": c.Location,
				})
			}
			fmt.Printf("Resource Name                           : %s\nResource Group Name       "+
				"              : %s\nSubscription ID                         : %s\nTenant ID    "+
				"                           : %s\nAgent Version                           : "+
				"%s\nAgent Status                            : %s\n",
				c.ResourceName, c.ResourceGroup, c.SubscriptionID, c.TenantID, arcVersion, status)
			return nil
		},
	}
	cmd.Flags().BoolVarP(&asJSON, "json", "j", false, "")
	return cmd
}

func disconnectCommand() *cobra.Command {
	token, config, localOnly := "", "", false
	cmd := &cobra.Command{
		Use: "disconnect", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromFile(cmd, config); err != nil {
				return err
			}
			m, err := machine()
			if err != nil {
				return err
			}
			return m.Disconnect(cmd.Context(), token, localOnly)
		},
	}
	cmd.Flags().StringVar(&token, "access-token", "", "")
	cmd.Flags().StringVar(&config, "config", "", "")
	cmd.Flags().BoolVarP(&localOnly, "force-local-only", "f", false, "")
	return cmd
}

// configCommand returns "azcmagent config", which gets, sets and clears settings.
func configCommand() *cobra.Command {
	change := func(use string, args int, do func(m azuresim.ConnectedMachine,
		args []string) error) *cobra.Command {
		return &cobra.Command{
			Use: use, Args: cobra.ExactArgs(args),
			RunE: func(_ *cobra.Command, args []string) error {
				m, err := machine()
				if err != nil {
					return err
				}
				return do(m, args)
			},
		}
	}
	root := &cobra.Command{Use: "config"}
	root.AddCommand(
		change("get NAME", 1, func(m azuresim.ConnectedMachine, args []string) error {
			value, err := m.Setting(args[0])
			if err == nil {
				fmt.Println(value)
			}
			return err
		}),
		change("set NAME VALUE", 2, func(m azuresim.ConnectedMachine, args []string) error {
			return m.Set(args[0], args[1])
		}),
		change("clear NAME", 1, func(m azuresim.ConnectedMachine, args []string) error {
			return m.Set(args[0], "")
		}),
	)
	return root
}
