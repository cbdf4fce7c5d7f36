package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/images"
)

const (
	nvidiaProgram = "/usr/bin/nvidia-container-runtime"
	nvidiaCalls   = "/var/log/nvidia-container-runtime.calls"
	// fakeNvidia behaves like NVIDIA's runtime: it is called instead of runc, and calls runc.
	fakeNvidia = "#!/bin/sh\necho \"$@\" >>" + nvidiaCalls + "\nexec /usr/local/sbin/runc \"$@\"\n"
)

// installNvidia installs a runtime under NVIDIA's name, as the owner of a machine with a GPU would.
func installNvidia(t *testing.T, m lab.Machine) {
	t.Helper()
	if err := bench.Write(m, nvidiaProgram, 0o755, []byte(fakeNvidia)); err != nil {
		t.Fatal(err)
	}
}

// withNvidia is the RuntimeClass of docs/how-to/gpu.md and a pod with it.
const withNvidia = `apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: nvidia
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  nodeName: %[2]s
  runtimeClassName: nvidia
  terminationGracePeriodSeconds: 1
  containers: [{name: hello, image: "%[3]s"}]
`

// nvidiaRuns checks that a pod with the RuntimeClass nvidia runs through NVIDIA's runtime, and no
// other pod does.
func nvidiaRuns(t *testing.T, m lab.Machine) {
	ctx := t.Context()
	manifest := fmt.Sprintf(withNvidia, "with-nvidia", m.Name, images.Hello)
	if _, err := bench.StartPod(ctx, "with-nvidia", manifest); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.RunPod(ctx, "without-nvidia", m.Name); err != nil {
		t.Fatal(err)
	}
	calls, err := os.ReadFile(filepath.Join(m.Root, nvidiaCalls))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"with-nvidia": true, "without-nvidia": false} {
		id, err := bench.Kubectl(ctx, "", "get", "pod", name, "-o",
			"jsonpath={.status.containerStatuses[0].containerID}")
		_, id, ok := strings.Cut(id, "containerd://")
		if err != nil || !ok || id == "" {
			t.Fatalf("the container of pod %s is %q: %v", name, id, err)
		}
		if got := strings.Contains(string(calls), id); got != want {
			t.Errorf("pod %s ran through NVIDIA's runtime: %v, want %v\n%s", name, got, want, calls)
		}
	}
	out, err := bench.Kubectl(ctx, "", "exec", "with-nvidia", "--", "/hello", "hostname")
	if err != nil || strings.TrimSpace(out) != "with-nvidia" {
		t.Errorf("in the pod a command says %q: %v", out, err)
	}
}
