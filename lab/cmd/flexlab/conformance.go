package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/lab/conformance"
)

// conformance returns the command that runs Kubernetes' conformance tests on flex nodes.
func (c *command) conformance() *cobra.Command {
	r := conformanceRun{}
	cmd := &cobra.Command{
		Use: "conformance", Short: "Run Kubernetes' own conformance tests on flex nodes",
		Args: cobra.NoArgs,
		Long: `Builds e2e.test of the lab's newest Kubernetes and the images of its tests, and runs
the conformance tests on the lab's nodes, several in parallel. If no lab is running, it
starts one and stops it at the end. It adds missing machines and joins those that are
not nodes. Tests that cannot run here are left out by name, with the reason
(lab/conformance/leftout.txt). A failed test is retried, and counts as flaky if it then
passes. The last line is

  conformance ran=.. passed=.. failed=.. flaky=.. left_out=..`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.conform(cmd.Context(), r)
		},
	}
	cmd.Flags().BoolVar(&r.quick, "quick", false, "run 60 tests, as after a change of a node")
	cmd.Flags().BoolVar(
		&r.node, "node", false,
		"run e2e_node.test --conformance on the lab's only machine",
	)
	cmd.Flags().StringVar(&r.focus, "focus", "", "run the tests whose names match this `regexp`")
	cmd.Flags().IntVar(&r.nodes, "nodes", 2, "minimum number of nodes")
	cmd.Flags().IntVar(&r.processes, "processes", 5, "number of tests that run in parallel")
	return c.versionFlags(cmd)
}

// conformanceRun holds the flags.
type conformanceRun struct {
	quick, node      bool
	focus            string
	nodes, processes int
}

func (c *command) conform(ctx context.Context, r conformanceRun) (err error) {
	focus, err := regexp.Compile(r.focus)
	if err != nil {
		return fmt.Errorf("cannot use --focus: %w", err)
	}
	running, err := c.lab.Running()
	if err != nil {
		return err
	}
	if len(running) == 0 {
		defer func() { err = errors.Join(err, c.lab.Down(context.WithoutCancel(ctx))) }()
	}
	if r.node {
		r.nodes = 1
	}
	if err := c.nodes(ctx, r.nodes); err != nil {
		return err
	}
	suite, err := conformance.New(ctx, c.lab, r.processes, os.Stderr)
	if err != nil {
		return err
	}
	got, err := c.runSuite(ctx, suite, r, focus)
	if err != nil {
		return err
	}
	for _, failed := range got.Failed {
		fmt.Println("failed:", failed)
	}
	fmt.Println(got)
	if len(got.Failed) > 0 {
		return errors.New("the nodes do not conform")
	}
	return nil
}

// runSuite runs the tests that the flags select.
func (c *command) runSuite(
	ctx context.Context, suite *conformance.Suite, r conformanceRun, focus *regexp.Regexp,
) (conformance.Result, error) {
	switch {
	case r.quick:
		return suite.Run(ctx, conformance.Quick())
	case !r.node:
		return suite.Run(ctx, suite.Matching(focus))
	}
	machines, err := c.lab.Machines()
	if err == nil && len(machines) != 1 {
		err = fmt.Errorf("cannot run the tests of a node: the lab has %d machines", len(machines))
	}
	if err != nil {
		return conformance.Result{}, err
	}
	return suite.RunNode(ctx, machines[0])
}

// nodes starts the lab with at least number machines and joins those that are not nodes.
func (c *command) nodes(ctx context.Context, number int) error {
	if err := c.start(ctx, number); err != nil {
		return err
	}
	machines, err := c.lab.Machines()
	if err != nil {
		return err
	}
	list, err := c.lab.Kubectl(ctx, "", "get", "nodes", "-o", "name")
	if err != nil {
		return err
	}
	for _, m := range machines {
		if strings.Contains(list, "node/"+m.Name+"\n") {
			continue
		}
		err := c.lab.Join(ctx, m, c.agent, c.versions, "bootstrapToken", os.Stderr, os.Stderr)
		if err != nil {
			return fmt.Errorf("cannot make %s a node: %w", m.Name, err)
		}
	}
	return nil
}
