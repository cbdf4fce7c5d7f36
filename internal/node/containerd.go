package node

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// ContainerdUnit is the unit of the container runtime.
const ContainerdUnit = "containerd.service"

// ContainerdSocket is the socket on which containerd serves kubelet.
const ContainerdSocket = "/run/containerd/containerd.sock"

const containerdConfig = "/etc/containerd/config.toml"

//go:embed containerd.service
var containerdService string

// The configuration format follows containerd's major version: format 2 with the grpc.v1.cri plugin
// for 1.x, format 3 with the split cri.v1 plugins for 2.x (containerd docs/cri/config.md).
var (
	//go:embed containerd-v2.toml
	configFormat2 string
	//go:embed containerd-v3.toml
	configFormat3 string
)

// containerd installs the container runtime, its configuration and its unit. Operators' settings
// belong into /etc/containerd/conf.d, registries into /etc/containerd/certs.d.
func containerd(p *part) {
	owes := []string{ContainerdUnit}
	files := []string{"containerd", "containerd-shim-runc-v2", "ctr"}
	if strings.HasPrefix(p.config.Containerd.Version, "1.") { // 2.x has dropped the shims of 1.x
		files = append(files, "containerd-shim", "containerd-shim-runc-v1", "containerd-stress")
	}
	for _, file := range files {
		p.owe(owes, p.bin(binDir, "containerd", "bin/"+file))
	}
	p.add(
		owned("/var/lib/containerd", 0o700, "tmpmounts"),
		owned("/run/containerd", 0o711,
			"io.containerd.runtime.v2.task",
			"io.containerd.grpc.v1.cri",
			"io.containerd.sandbox.controller.v1.shim"),
		owned("/run/nri", 0o700),
		shared("/run/netns"),
	)
	p.owe(owes, state.NewFile(containerdConfig, 0o644, p.containerdConfig()))
	p.unit(ContainerdUnit, 0o644, fill(containerdService))
	p.proxyDropIn(ContainerdUnit)
}

func (p *part) containerdConfig() string {
	text, plugin := configFormat3, "io.containerd.cri.v1.runtime"
	if strings.HasPrefix(p.config.Containerd.Version, "1.") {
		text, plugin = configFormat2, "io.containerd.grpc.v1.cri"
	}
	binDirs := fmt.Sprintf("bin_dirs = [%q]", p.config.Paths.CNI.BinDir)
	if strings.HasPrefix(p.config.Containerd.Version, "2.0.") { // bin_dirs was added in 2.1
		binDirs = fmt.Sprintf("bin_dir = %q", p.config.Paths.CNI.BinDir)
	}
	return fill(text,
		"{{CNIBinDirs}}", binDirs,
		"{{Pause}}", p.config.Containerd.PauseImage,
		"{{Metrics}}", p.config.Containerd.MetricsAddress,
		"{{CNIBin}}", p.config.Paths.CNI.BinDir,
		"{{CNIConf}}", p.config.Paths.CNI.ConfDir,
		"{{Runc}}", sbinDir+"/runc",
		"{{Nvidia}}", p.nvidia(plugin))
}

// nvidia returns the runtime handler for NVIDIA's runtime, if that is installed.
func (p *part) nvidia(plugin string) string {
	if p.facts.NvidiaRuntime == "" {
		return ""
	}
	table := fmt.Sprintf("plugins.%q.containerd.runtimes.nvidia", plugin)
	return fmt.Sprintf(`
    [%[1]s]
      runtime_type = "io.containerd.runc.v2"

      [%[1]s.options]
        BinaryName = %[2]q
        SystemdCgroup = true
`, table, p.facts.NvidiaRuntime)
}

// fill replaces {{names}} in one of our embedded files. With text/template, which calls methods by
// name, the program would keep every method of every type, a fifth of its size.
func fill(text string, values ...string) string {
	return header + strings.NewReplacer(values...).Replace(text)
}
