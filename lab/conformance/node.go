package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/lab"
)

// nodeAdmin has all rights in the cluster; the tests of a node accept no credential other than a
// token.
const nodeAdmin = `apiVersion: v1
kind: ServiceAccount
metadata: {name: e2e-node, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "flexlab:e2e-node"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: e2e-node, namespace: kube-system}]
`

// nodeSpec requires no kernel options in the tests: the kernel is the host's.
const nodeSpec = `{"os": "Linux"}`

// RunNode runs the conformance tests of a node (e2e_node.test) inside its machine, with its running
// kubelet. The cluster must have no other node.
func (s *Suite) RunNode(ctx context.Context, m lab.Machine) (Result, error) {
	var out Result
	reasons, err := LeftOut()
	if err != nil {
		return out, err
	}
	skip := []string{`\[Slow\]|\[Disruptive\]|\[Flaky\]|\[Serial\]`}
	for name, reason := range reasons {
		if strings.HasSuffix(name, nodeMark) {
			out.leave(name, reason)
			skip = append(skip, regexp.QuoteMeta(strings.TrimSuffix(name, nodeMark)))
		}
	}
	slices.Sort(out.LeftOut)
	token, err := s.nodeToken(ctx)
	if err != nil {
		return out, err
	}
	if err := s.equip(m); err != nil {
		return out, err
	}
	script := fmt.Sprintf("mkdir -p /rootfs && mount --rbind --make-rslave / /rootfs && "+
		"cd /root/e2e-node && "+
		"exec ./ginkgo run --procs=%d --no-color --silence-skips --timeout=1h --flake-attempts=2 "+
		"--json-report=%s --focus='\\[NodeConformance\\]' --skip=\"$(cat skip)\" ./e2e_node.test -- "+
		"--conformance --start-services=false --stop-services=false --prepull-images=false "+
		"--system-spec-file=/root/e2e-node/spec.json --host=%s --bearer-token=\"$(cat token)\" "+
		"--node-name=%s --container-runtime-endpoint=unix:///run/containerd/containerd.sock",
		s.Processes, reportFile, lab.APIServer, m.Name)
	for name, text := range map[string]string{
		"token": token, "skip": strings.Join(skip, "|"), "spec.json": nodeSpec,
	} {
		if err := s.Lab.Write(m, nodeDir+name, 0o600, []byte(text)); err != nil {
			return out, err
		}
	}
	cmd, err := s.Lab.Command(ctx, m, "sh", "-c", script)
	if err != nil {
		return out, err
	}
	cmd.Stdout, cmd.Stderr = s.Out, s.Out
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return out, fmt.Errorf("cannot run the tests: %w", err)
	}
	return out, out.read(filepath.Join(m.Root, nodeDir, reportFile), nil)
}

// nodeDir is the directory of the tests in a machine. In the list of tests to leave out, their
// names end with nodeMark.
const (
	nodeDir  = "/root/e2e-node/"
	nodeMark = " (node)"
)

// nodeToken returns a token for a node's tests.
func (s *Suite) nodeToken(ctx context.Context) (string, error) {
	if _, err := s.Lab.Kubectl(ctx, nodeAdmin, "apply", "-f", "-"); err != nil {
		return "", err
	}
	token, err := s.Lab.Kubectl(ctx, "", "create", "token", "e2e-node", "--namespace=kube-system",
		"--duration=3h")
	return strings.TrimSpace(token), err
}

// equip installs the programs on a machine.
func (s *Suite) equip(m lab.Machine) error {
	for _, name := range []string{"ginkgo", "e2e_node.test"} {
		program, err := os.ReadFile(filepath.Join(s.programs, name))
		if err == nil {
			err = s.Lab.Write(m, nodeDir+name, 0o755, program)
		}
		if err != nil {
			return fmt.Errorf("cannot put the tests into %s: %w", m.Name, err)
		}
	}
	return nil
}
