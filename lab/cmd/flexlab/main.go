// Command flexlab runs the lab: a real Kubernetes control plane, real systemd machines and a mirror
// of the artifacts on one Linux machine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	code, silent := exitCode(err)
	if err != nil && !silent {
		fmt.Fprintln(os.Stderr, "Error:", err)
	}
	os.Exit(code)
}

// passed is the exit of a program that ran in the user's terminal: it has printed its own error,
// and flexlab exits with its code.
type passed struct{ *exec.ExitError }

// exitCode returns the process exit code and whether there is no error to print.
func exitCode(err error) (code int, silent bool) {
	if err == nil {
		return 0, true
	}
	end, ok := errors.AsType[passed](err)
	if !ok {
		return 1, false
	}
	if status, ok := end.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), true // as shells do
	}
	return end.ExitCode(), true
}

// pass runs a program in this terminal.
func pass(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return handOn(cmd.Run())
}

// handOn marks the exit of a program that ran for the user. Errors of other programs are wrapped,
// so they are not bare exit errors.
func handOn(err error) error {
	if end, bare := err.(*exec.ExitError); bare {
		return passed{end}
	}
	return err
}

func run(ctx context.Context, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find the path of flexlab: %w", err)
	}
	began := time.Now()
	l, err := lab.New(self, func(format string, args ...any) {
		fmt.Fprintf(
			os.Stderr, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...),
		)
	})
	if err != nil {
		return err
	}
	root := newRoot(&command{lab: l, agent: filepath.Join(filepath.Dir(self), "aks-flex-node")})
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// command holds what all subcommands share.
type command struct {
	lab *lab.Lab
	// agent is the aks-flex-node to install on machines.
	agent string
	// against is another one, measured at the same time.
	against  string
	output   string
	versions lab.Versions
}

func newRoot(c *command) *cobra.Command {
	c.versions = lab.Newest
	root := &cobra.Command{
		Use:   "flexlab",
		Short: "A lab for AKS Flex Node: real control plane, real machines, one host",
		Long: `flexlab runs a real Kubernetes control plane and real systemd machines on this
host, so that machines can join a cluster as nodes without Azure and without a
second computer. It needs root. ` + "`flexlab down`" + ` leaves nothing behind.

  flexlab up --nodes 2     start, with two machines
  flexlab join node-1      make a machine a node
  flexlab kubectl get node
  flexlab shell node-1     look around in a machine
  flexlab check node-1     check the node from outside: ports, a pod, Services, DNS
  flexlab status           list running processes
  flexlab down             stop and remove everything`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(
		c.up(), c.node(), c.join(), c.kubectl(), c.shell(), c.exec(), c.logs(), c.mirror(), c.env(),
		c.down(), c.status(), c.check(), c.demo(), c.bench(), c.chaos(), c.conformance(), c.apiserver(),
		c.rotateCA(),
		c.serve(), c.bare(), c.neighbours(), c.balance(), c.links(), c.launch(),
	)
	return root
}

// versionFlags adds flags for a node's versions to a command.
func (c *command) versionFlags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(
		&c.versions.Kubernetes, "kubernetes", lab.Newest.Kubernetes,
		"kubelet's `version`: "+lab.Newest.Kubernetes+", "+lab.Former.Kubernetes+" or "+
			lab.Oldest.Kubernetes,
	)
	cmd.Flags().StringVar(
		&c.versions.Containerd, "containerd", lab.Newest.Containerd,
		"containerd's `version`: "+lab.Newest.Containerd+" or "+lab.Oldest.Containerd,
	)
	cmd.Flags().StringVar(
		&c.agent, "agent", c.agent, "aks-flex-node `program` to install on machines",
	)
	return cmd
}

func (c *command) up() *cobra.Command {
	nodes, rp, tunnel := 1, false, false
	cmd := &cobra.Command{
		Use: "up", Short: "Start the lab, or what is missing of it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rp {
				c.lab.Replicas = max(c.lab.Replicas, 1)
			}
			if err := c.start(cmd.Context(), nodes); err != nil {
				return err
			}
			if !tunnel && !c.lab.HasTunnel() {
				return nil
			}
			return c.lab.StartTunnel(cmd.Context())
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 1, "minimum number of machines")
	cmd.Flags().BoolVar(
		&c.lab.WithAzure, "azure", false,
		"start a simulated Azure too: Entra ID, Resource Manager, Arc",
	)
	cmd.Flags().BoolVar(
		&rp, "rp", false, "start the resource provider too, with the simulated Azure that it needs",
	)
	cmd.Flags().IntVar(
		&c.lab.Replicas, "replicas", 0,
		"number of replicas of the resource provider; more than one require --etcd",
	)
	cmd.Flags().IntVar(
		&c.lab.Members, "etcd", 0,
		"number of `members` of an etcd that the replicas share; by default a replica embeds one",
	)
	cmd.Flags().BoolVar(
		&tunnel, "tunnel", false,
		"let the API server reach nodes through a tunnel that they open (konnectivity)",
	)
	cmd.Flags().BoolVar(
		&c.lab.WithIPv6, "dual-stack", false,
		"use IPv4 and IPv6 for pods and Services; only for a new lab",
	)
	return c.versionFlags(cmd)
}

// start starts the lab with at least the given number of machines.
func (c *command) start(ctx context.Context, nodes int) error {
	if nodes > 0 { // otherwise components are built on first use
		if err := c.lab.Build(ctx, c.versions); err != nil {
			return err
		}
	}
	c.lab.Plain = c.against != ""
	if err := c.lab.Up(ctx); err != nil {
		return err
	}
	machines, err := c.lab.Machines()
	if err != nil {
		return err
	}
	for _, m := range machines {
		if err := c.lab.StartMachine(ctx, m); err != nil {
			return err
		}
	}
	for len(machines) < nodes {
		m, err := c.addMachine(ctx, "")
		if err != nil {
			return err
		}
		machines = append(machines, m)
	}
	return nil
}

// addMachine adds a machine. The default name is node-N with the first free N.
func (c *command) addMachine(
	ctx context.Context, name string, disks ...string,
) (lab.Machine, error) {
	var list []lab.Disk
	for _, text := range disks {
		d, err := lab.ParseDisk(text)
		if err != nil {
			return lab.Machine{}, err
		}
		list = append(list, d)
	}
	machines, err := c.lab.Machines()
	if err != nil {
		return lab.Machine{}, err
	}
	for i := 1; name == ""; i++ {
		name = fmt.Sprintf("node-%d", i)
		for _, m := range machines {
			if m.Name == name {
				name = ""
			}
		}
	}
	began := time.Now()
	m, err := c.lab.AddMachineWithDisks(ctx, name, list...)
	if err == nil {
		c.lab.Say("machine %s at %s is up in %.1f s", m.Name, m.IP, time.Since(began).Seconds())
	}
	return m, err
}

func (c *command) node() *cobra.Command {
	parent := &cobra.Command{Use: "node", Short: "Add, remove and list machines"}
	list := &cobra.Command{
		Use: "list", Short: "List the machines", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			machines, err := c.lab.Machines()
			if err != nil {
				return err
			}
			if c.output == "json" {
				return json.NewEncoder(os.Stdout).Encode(machines)
			}
			for _, m := range machines {
				fmt.Printf("%-16s %-14s %s\n", m.Name, m.IP, m.Root)
			}
			return nil
		},
	}
	list.Flags().StringVarP(&c.output, "output", "o", "text", "text or json")
	var disks []string
	add := &cobra.Command{
		Use: "add [NAME]", Short: "Add a machine and boot it", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := c.addMachine(cmd.Context(), append(args, "")[0], disks...)
			return err
		},
	}
	add.Flags().StringArrayVar(
		&disks, "disk", nil,
		"a data disk, `FS:PATH`, such as ext4:/var/lib/containerd or xfs:/data; may be repeated",
	)
	parent.AddCommand(list, add, &cobra.Command{
		Use: "rm NAME", Short: "Stop a machine and delete it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.lab.RemoveMachine(cmd.Context(), args[0])
		},
	}, &cobra.Command{
		Use: "reboot NAME", Short: "Shut a machine down and boot it again", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := c.lab.Machine(args[0])
			if err != nil {
				return err
			}
			return errors.Join(
				c.lab.StopMachine(cmd.Context(), m), c.lab.StartMachine(cmd.Context(), m),
			)
		},
	})
	return parent
}

func (c *command) join() *cobra.Command {
	auth := ""
	cmd := &cobra.Command{
		Use: "join NODE", Short: "Make a machine a node of the lab's cluster", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := c.lab.Machine(args[0])
			if err != nil {
				return err
			}
			return handOn(
				c.lab.Join(cmd.Context(), m, c.agent, c.versions, auth, os.Stdout, os.Stderr),
			)
		},
	}
	cmd.Flags().StringVar(
		&auth, "auth", "bootstrapToken", "how the node authenticates: "+
			strings.Join(lab.Auths, ", ")+"; the `method`s but the first need flexlab up --azure",
	)
	return c.versionFlags(cmd)
}

func (c *command) kubectl() *cobra.Command {
	return &cobra.Command{
		Use: "kubectl ARGS...", Short: "Run kubectl as the cluster's administrator",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			k := exec.CommandContext(
				cmd.Context(),
				filepath.Join(c.lab.Dir, "kubectl"),
				append([]string{"--kubeconfig=" + c.lab.Kubeconfig()}, args...)...)
			return pass(k)
		},
	}
}

func (c *command) shell() *cobra.Command {
	return &cobra.Command{
		Use: "shell NODE", Short: "Open a shell in a machine", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.inside(cmd.Context(), args[0], "bash", "-l")
		},
	}
}

func (c *command) exec() *cobra.Command {
	return &cobra.Command{
		Use: "exec NODE -- COMMAND...", Short: "Run a command in a machine", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.inside(cmd.Context(), args[0], args[1:]...)
		},
	}
}

func (c *command) logs() *cobra.Command {
	follow := false
	cmd := &cobra.Command{
		Use: "logs NODE", Short: "Show a machine's journal", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			argv := []string{"journalctl", "--no-pager"}
			if follow {
				argv = append(argv, "--follow")
			}
			return c.inside(cmd.Context(), args[0], argv...)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new entries as they are logged")
	return cmd
}

// inside runs a command in a machine, in this terminal.
func (c *command) inside(ctx context.Context, name string, argv ...string) error {
	m, err := c.lab.Machine(name)
	if err != nil {
		return err
	}
	cmd, err := c.lab.Command(ctx, m, argv...)
	if err != nil {
		return err
	}
	return pass(cmd)
}

func (c *command) env() *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print shell exports for using the lab from outside: eval \"$(flexlab env)\"",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			variables := [][2]string{
				{"KUBECONFIG", c.lab.Kubeconfig()},
				{"FLEXLAB_DIR", c.lab.Dir},
				{"FLEXLAB_SERVER", lab.APIServer},
				{"FLEXLAB_CA", c.lab.CAFile()},
				{"FLEXLAB_MIRROR", lab.MirrorURL},
				{"FLEXLAB_CONTROL", lab.ControlURL},
			}
			if c.lab.HasAzure() {
				who, err := c.lab.Azure()
				if err != nil {
					return err
				}
				variables = append(variables, [][2]string{
					{"AZURE_AUTHORITY_HOST", lab.AzureURL},
					{"AZURE_TENANT_ID", lab.Tenant},
					{"AZURE_SUBSCRIPTION_ID", lab.Subscription},
					{"AZURE_CLIENT_ID", who.Operator.ClientID},
					{"AZURE_CLIENT_SECRET", who.Operator.Secret},
					{"FLEXLAB_UNPRIVILEGED_CLIENT_ID", who.Unprivileged.ClientID},
					{"FLEXLAB_UNPRIVILEGED_CLIENT_SECRET", who.Unprivileged.Secret},
					{"FLEXLAB_ARM", lab.AzureURL},
					{"FLEXLAB_CLUSTER_ID", lab.ClusterID},
					{"FLEXLAB_AZURE_CONTROL", lab.AzureControlURL},
					{"FLEXLAB_RP", lab.ProviderURL},
					{"REQUESTS_CA_BUNDLE", c.lab.CAFile()},
					{"SSL_CERT_FILE", c.lab.CAFile()},
				}...)
			}
			for _, v := range variables {
				fmt.Printf("export %s=%q\n", v[0], v[1])
			}
			return nil
		},
	}
}

func (c *command) down() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Stop and remove everything", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.lab.Down(cmd.Context()) },
	}
}

func (c *command) serve() *cobra.Command {
	return &cobra.Command{
		Use: "serve", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.lab.Serve(cmd.Context()) },
	}
}

func (c *command) bare() *cobra.Command {
	return &cobra.Command{
		Use: "bare", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.lab.ServeBare(cmd.Context()) },
	}
}

func (c *command) neighbours() *cobra.Command {
	return &cobra.Command{
		Use: "neighbours", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.lab.ServeNeighbours(cmd.Context())
		},
	}
}

func (c *command) balance() *cobra.Command {
	return &cobra.Command{
		Use: "balance", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return lab.ServeBalancer(cmd.Context()) },
	}
}

func (c *command) links() *cobra.Command {
	return &cobra.Command{
		Use: "links MEMBERS", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			members, err := strconv.Atoi(args[0])
			if err != nil {
				return fmt.Errorf("cannot use %q as a number of members: %w", args[0], err)
			}
			return lab.ServeLinks(cmd.Context(), members)
		},
	}
}

func (c *command) launch() *cobra.Command {
	return &cobra.Command{
		Use: "launch NAME ROOT", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error { return lab.Launch(args[0], args[1]) },
	}
}
