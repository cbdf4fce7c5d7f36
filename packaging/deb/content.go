package deb

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/Azure/AKSFlexNode/packaging"
	"github.com/Azure/AKSFlexNode/packaging/man"
	"github.com/Azure/AKSFlexNode/packaging/notice"
)

// scripts are the maintainer scripts (Debian Policy 6).
//
//go:embed scripts
var scripts embed.FS

//go:embed copyright
var copyright string

const homepage = "https://" + packaging.Project

// KeyringFile is the path of the archive's keys on a machine, which sources name in Signed-By.
const KeyringFile = "/usr/share/keyrings/aks-flex-node-archive-keyring.gpg"

// keyring describes the package of the archive's keys, which updates them on machines.
func (r Release) keyring(b *builder) {
	b.Section = "misc"
	b.Description = `keys of the AKS Flex Node package archive
The packages of AKS Flex Node come from a repository with a signed index.
This package contains the keys with which apt verifies the signature.`
	b.put(KeyringFile[1:], string(r.Key))
}

// program describes the package of a program.
func (r Release) program(ctx context.Context, b *builder) {
	program := filepath.Join(r.Programs, b.Arch, b.Name)
	b.add("usr/bin/"+b.Name, 0o755, program)
	b.add("etc/"+b.Name, fs.ModeDir|0o755, "")
	b.Depends = []string{"ca-certificates", "init-system-helpers (>= 1.54~)", "systemd"}
	b.Recommends = []string{Keyring}
	overrides := "# Go's linker writes one file, without libc and without an interpreter.\n" +
		b.Name + ": statically-linked-binary [usr/bin/" + b.Name + "]\n"
	if b.Name == Agent {
		agent(b)
		overrides += "# It holds dpkg's lock while dpkg installs the Arc agent.\n" +
			b.Name + ": uses-dpkg-database-directly [usr/bin/" + b.Name + "]\n"
	} else {
		provider(b)
	}
	b.put("usr/share/lintian/overrides/"+b.Name, overrides)
	b.scripts()
	r.pages(b)
	b.completions(filepath.Join(r.Programs, r.Native, b.Name))
	doc := "usr/share/doc/" + b.Name
	bom, err := BOM(program, b.Name, r, b.Name == Agent)
	b.fail(err)
	b.put(doc+"/sbom.cdx.json", string(bom))
	terms, err := notice.Of(ctx, program)
	b.fail(err)
	b.compressed(doc+"/NOTICE", string(terms))
}

func agent(b *builder) {
	// kubelet and the CNI plugins call iptables, which minimal systems lack. nftables keeps pods
	// from the metadata service.
	b.Depends = append(b.Depends, "iptables", "kmod", "mount", "nftables")
	b.Recommends = append(b.Recommends, "conntrack", "ethtool", "socat")
	b.Description = `makes a machine a node of an AKS cluster
aks-flex-node makes a Linux machine outside Azure a worker node of an Azure
Kubernetes Service cluster, keeps it as configured, and restores it when it
leaves the cluster.

The installation neither enables nor starts the service: write
/etc/aks-flex-node/config.json first, or use a configuration URL.`
	doc := "usr/share/doc/" + b.Name + "/"
	b.put(doc+"examples/50unattended-upgrades-aks-flex-node", b.text("unattended-upgrades"))
	b.unit(packaging.AgentUnit)
	list, err := fs.Glob(packaging.Files, "examples/*")
	b.fail(err)
	for _, name := range list {
		b.put(doc+name, b.text(name))
	}
}

func provider(b *builder) {
	b.Description = `resource provider of AKS Flex Node
flexnode-rp serves flexNodeConfig as an Azure Resource Manager resource. It
generates the configurations with which machines outside Azure become nodes
of AKS clusters, and delivers each one once.

The installation neither enables nor starts the service: write
/etc/flexnode-rp/settings.json first.`
	b.put("usr/lib/sysusers.d/flexnode-rp.conf", b.text("sysusers.d/flexnode-rp.conf"))
	b.unit("flexnode-rp.service")
}

// unit adds a systemd unit, with the paths of packaged programs.
func (b *builder) unit(name string) {
	b.put("usr/lib/systemd/system/"+name,
		strings.ReplaceAll(b.text("systemd/"+name), "/usr/local/bin/", "/usr/bin/"))
}

// text returns a file of the package packaging.
func (b *builder) text(name string) string {
	text, err := packaging.Files.ReadFile(name)
	b.fail(err)
	return string(text)
}

// scripts adds the program's maintainer scripts.
func (b *builder) scripts() {
	for call, file := range map[string]*string{"preinst": &b.Scripts.PreInstall,
		"postinst": &b.Scripts.PostInstall, "prerm": &b.Scripts.PreRemove,
		"postrm": &b.Scripts.PostRemove} {
		if text, err := scripts.ReadFile("scripts/" + b.Name + "." + call); err == nil {
			*file = b.staged(string(text))
		}
	}
}

// pages adds a program's manual pages.
func (r Release) pages(b *builder) {
	list, err := man.Pages(b.Name, r.Time)
	b.fail(err)
	for page, text := range list {
		section := page[len(page)-1:]
		b.compressed("usr/share/man/man"+section+"/"+page, text)
	}
}

// completions adds shell completions, which the program itself writes.
func (b *builder) completions(program string) {
	for shell, path := range map[string]string{
		"bash": "bash-completion/completions/" + b.Name,
		"zsh":  "zsh/vendor-completions/_" + b.Name,
		"fish": "fish/vendor_completions.d/" + b.Name + ".fish",
	} {
		text, err := exec.Command(program, "completion", shell).Output()
		if err != nil {
			b.fail(fmt.Errorf("cannot make the completions of %s: %w", b.Name, err))
		}
		b.put("usr/share/"+path, string(text))
	}
}

// document adds copyright and changelog (Debian Policy 12).
func (r Release) document(b *builder) {
	doc := "usr/share/doc/" + b.Name
	b.compressed(doc+"/changelog", fmt.Sprintf(
		"%s (%s) stable; urgency=medium\n\n  * Built from commit %s of %s.\n\n -- %s  %s\n",
		b.Name, r.Version, cmp.Or(r.Commit, "unknown"), homepage, r.Maintainer,
		r.Time.UTC().Format("Mon, 02 Jan 2006 15:04:05 -0700")))
	b.put(doc+"/copyright", copyright)
}
