package deb

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/Azure/AKSFlexNode/packaging"
	"github.com/Azure/AKSFlexNode/packaging/man"
	"github.com/Azure/AKSFlexNode/packaging/notice"
)

// The programs' scripts for dpkg (Debian Policy 6).
//
//go:embed scripts
var scripts embed.FS

//go:embed copyright
var copyright string

const homepage = "https://github.com/Azure/AKSFlexNode"

// KeyringFile is where the archive's key is on a machine, as sources name it in Signed-By.
const KeyringFile = "/usr/share/keyrings/aks-flex-node-archive-keyring.gpg"

// Agent is the package of aks-flex-node.
func (r Release) Agent(ctx context.Context, arch string) (Package, error) {
	p := r.program("aks-flex-node", arch)
	p.control = append(p.control, [][2]string{
		// iptables: kubelet and the CNI plugins call it, and minimal systems have none. nftables: keeps
		// pods from the metadata service.
		{"Depends", "ca-certificates, init-system-helpers (>= 1.54~), iptables, kmod, mount, " +
			"nftables, systemd"},
		{"Recommends", "aks-flex-node-archive-keyring, conntrack, ethtool, socat"},
		{"Description", "makes a machine a node of an AKS cluster\n" +
			" aks-flex-node makes a Linux machine outside of Azure a worker node of an\n" +
			" Azure Kubernetes Service cluster, keeps it as configured, and gives it back\n" +
			" as it was.\n" +
			" .\n" +
			" The installation neither enables nor starts the service: write\n" +
			" /etc/aks-flex-node/config.json first, or use a configuration URL."},
	}...)
	p.items = append(p.items,
		item{path: "etc/aks-flex-node", mode: fs.ModeDir | 0o755},
		item{path: "usr/share/doc/aks-flex-node/examples/50unattended-upgrades-aks-flex-node",
			mode: 0o644, data: []byte(packaging.UnattendedUpgrades)},
		unit("aks-flex-node-agent.service", packaging.AgentUnit),
	)
	list, err := fs.Glob(packaging.Examples, "examples/*")
	if err != nil {
		return p, err
	}
	for _, name := range list {
		text, err := packaging.Examples.ReadFile(name)
		if err != nil {
			return p, err
		}
		p.items = append(p.items,
			item{path: "usr/share/doc/aks-flex-node/" + name, mode: 0o644, data: text})
	}
	return p.complete(ctx, true, "aks-flex-node.8", "aks-flex-node-config.json.5")
}

// Provider is the package of flexnode-rp.
func (r Release) Provider(ctx context.Context, arch string) (Package, error) {
	p := r.program("flexnode-rp", arch)
	p.control = append(p.control, [][2]string{
		{"Depends", "ca-certificates, init-system-helpers (>= 1.54~), systemd"},
		{"Recommends", "aks-flex-node-archive-keyring"},
		{"Description", "resource provider of AKS Flex Node\n" +
			" flexnode-rp serves flexNodeConfig as an Azure Resource Manager resource: it\n" +
			" generates the configurations with which machines outside of Azure become\n" +
			" nodes of AKS clusters, and hands each out once.\n" +
			" .\n" +
			" The installation neither enables nor starts the service: write\n" +
			" /etc/flexnode-rp/settings.json first."},
	}...)
	p.items = append(p.items,
		item{path: "etc/flexnode-rp", mode: fs.ModeDir | 0o755},
		item{path: "usr/lib/sysusers.d/flexnode-rp.conf", mode: 0o644,
			data: []byte(packaging.ProviderUser)},
		unit("flexnode-rp.service", packaging.ProviderUnit),
	)
	return p.complete(ctx, false, "flexnode-rp.8")
}

// Keyring is the package of the archive's key, which renews it on the machines.
func (r Release) Keyring() (Package, error) {
	p := Package{Name: "aks-flex-node-archive-keyring", Arch: "all", release: r}
	p.control = [][2]string{
		{"Section", "misc"}, {"Priority", "optional"}, {"Homepage", homepage},
		{"Description", "key of the AKS Flex Node package archive\n" +
			" The packages of AKS Flex Node come from a repository whose index is signed.\n" +
			" This package contains the key that apt checks the signature with."},
	}
	p.items = []item{{path: KeyringFile[1:], mode: 0o644, data: r.Key}}
	return p.document()
}

// program begins the package of a program.
func (r Release) program(name, arch string) Package {
	return Package{Name: name, Arch: arch, release: r,
		control: [][2]string{{"Section", "admin"}, {"Priority", "optional"}, {"Homepage", homepage}},
		items: []item{{path: "usr/bin/" + name, mode: 0o755,
			source: filepath.Join(r.Programs, arch, name)}},
	}
}

// complete adds what the package of a program has beside it.
func (p Package) complete(
	ctx context.Context, agent bool, pages ...string,
) (Package, error) {
	p.scripts = map[string]string{}
	for _, call := range []string{"preinst", "postinst", "prerm", "postrm"} {
		if text, err := scripts.ReadFile("scripts/" + p.Name + "." + call); err == nil {
			p.scripts[call] = string(text)
		}
	}
	for _, page := range pages {
		text, err := man.Pages.ReadFile("pages/" + page)
		if err != nil {
			return p, fmt.Errorf("cannot find the manual page: %w", err)
		}
		dated := strings.ReplaceAll(string(text), man.Date, p.release.Time.UTC().Format("2006-01-02"))
		z, err := compressed([]byte(dated))
		if err != nil {
			return p, err
		}
		section := page[len(page)-1:]
		p.items = append(p.items,
			item{path: "usr/share/man/man" + section + "/" + page + ".gz", mode: 0o644, data: z})
	}
	if err := p.completions(); err != nil {
		return p, err
	}
	program := filepath.Join(p.release.Programs, p.Arch, p.Name)
	bom, err := BOM(program, p.Name, p.release, agent)
	if err != nil {
		return p, err
	}
	text, err := notice.Of(ctx, program)
	if err != nil {
		return p, err
	}
	terms, err := compressed(text)
	if err != nil {
		return p, err
	}
	overrides := "# Go's linker makes one file, without libc and without an interpreter.\n" +
		p.Name + ": statically-linked-binary [usr/bin/" + p.Name + "]\n"
	if agent {
		overrides += "# It holds dpkg's lock while it has dpkg install the Arc agent.\n" +
			p.Name + ": uses-dpkg-database-directly [usr/bin/" + p.Name + "]\n"
	}
	p.items = append(p.items,
		item{path: "usr/share/doc/" + p.Name + "/sbom.cdx.json", mode: 0o644, data: bom},
		item{path: "usr/share/doc/" + p.Name + "/NOTICE.gz", mode: 0o644, data: terms},
		item{path: "usr/share/lintian/overrides/" + p.Name, mode: 0o644, data: []byte(overrides)})
	return p.document()
}

// completions has the program of this machine write what shells complete its command line with.
func (p *Package) completions() error {
	for shell, path := range map[string]string{
		"bash": "bash-completion/completions/" + p.Name,
		"zsh":  "zsh/vendor-completions/_" + p.Name,
		"fish": "fish/vendor_completions.d/" + p.Name + ".fish",
	} {
		program := filepath.Join(p.release.Programs, p.release.Native, p.Name)
		text, err := exec.Command(program, "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("cannot make the completions of %s: %w", p.Name, err)
		}
		p.items = append(p.items, item{path: "usr/share/" + path, mode: 0o644, data: text})
	}
	return nil
}

// document adds copyright and changelog (Debian Policy 12).
func (p Package) document() (Package, error) {
	r := p.release
	changes, err := compressed(fmt.Appendf(nil,
		"%s (%s) stable; urgency=medium\n\n  * Built from commit %s of %s.\n\n -- %s  %s\n",
		p.Name, r.Version, cmp.Or(r.Commit, "unknown"), homepage, r.Maintainer,
		r.Time.UTC().Format("Mon, 02 Jan 2006 15:04:05 -0700")))
	if err != nil {
		return p, err
	}
	p.items = append(p.items,
		item{path: "usr/share/doc/" + p.Name + "/changelog.gz", mode: 0o644, data: changes},
		item{path: "usr/share/doc/" + p.Name + "/copyright", mode: 0o644, data: []byte(copyright)})
	return p, nil
}

// unit is a unit for programs that a package manager owns.
func unit(name, text string) item {
	text = strings.ReplaceAll(text, "/usr/local/bin/", "/usr/bin/")
	return item{path: "usr/lib/systemd/system/" + name, mode: 0o644, data: []byte(text)}
}

// Write makes the packages for some architectures in a directory, and returns their files.
func (r Release) Write(
	ctx context.Context, dir string, archs ...string,
) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make packages: %w", err)
	}
	keyring, err := r.Keyring()
	list := []Package{keyring}
	for _, arch := range archs {
		agent, problem := r.Agent(ctx, arch)
		provider, other := r.Provider(ctx, arch)
		list, err = append(list, agent, provider), errors.Join(err, problem, other)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		file, err := p.Write(ctx, dir)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}
