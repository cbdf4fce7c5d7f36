package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// demo shows the whole way: lab, machine, node, pod.
func (c *command) demo() *cobra.Command {
	cmd := &cobra.Command{
		Use: "demo", Short: "Start the lab, join one machine and run a pod on it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.show(cmd.Context()) },
	}
	return c.versionFlags(cmd)
}

func (c *command) show(ctx context.Context) error {
	if err := c.start(ctx, 1); err != nil {
		return err
	}
	machines, err := c.lab.Machines()
	if err != nil {
		return err
	}
	m := machines[0]
	c.lab.Say("aks-flex-node bootstrap on %s", m.Name)
	began := time.Now()
	if err := c.lab.Join(ctx, m, c.agent, c.versions, "bootstrapToken", os.Stdout, os.Stderr); err != nil {
		return handOn(err)
	}
	took := time.Since(began)
	pod, err := c.lab.CheckPod(ctx, "hello-"+m.Name, m.Name)
	if err != nil {
		return err
	}
	if err := c.lab.CheckServices(ctx, "hello-"+m.Name); err != nil {
		return err
	}
	fmt.Printf(`
Look around:   bin/flexlab kubectl get nodes,pods -A -o wide
               bin/flexlab shell %[1]s
               bin/flexlab exec %[1]s -- aks-flex-node status
Stop:          make demo-down

demo: node %[1]s Ready in %.1[2]f s; pod %[3]s Running at %[4]s; logs ok; exec ok; services ok; dns ok
`, m.Name, took.Seconds(), "hello-"+m.Name, pod)
	return nil
}
