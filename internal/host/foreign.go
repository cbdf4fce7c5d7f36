package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ownNetwork is how the CNI plugins name our network in their rules.
const ownNetwork = "aks-flex-node"

// networkName finds the network that a rule of a CNI plugin belongs to; its comment says
// `name: "podman" id: "..."` (containernetworking/plugins, pkg/utils).
var networkName = regexp.MustCompile(`name: \\?"([^"\\]+)\\?"`)

// firewallChains are those of the firewall plugin, which our network does not use.
var firewallChains = []string{
	"CNI-FORWARD", "CNI-ADMIN", "CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2",
}

// foreignChains are the chains of one table that other CNI networks of this machine use, such as
// podman's: those whose rules, or the rules that jump to them, name another network, and the shared
// ones that are connected with those.
func foreignChains(rules []string) map[string]bool {
	named := map[string]string{}
	links := map[string][]string{}
	for _, rule := range rules {
		chain, rest, _ := strings.Cut(rule, " ")
		to := target(rest)
		links[chain], links[to] = append(links[chain], to), append(links[to], chain)
		name := networkName.FindStringSubmatch(rest)
		if name == nil {
			continue
		}
		for _, c := range []string{chain, to} {
			if perContainer(c) {
				named[c] = name[1]
			}
		}
	}
	foreign := map[string]bool{}
	var mark func(chain string)
	mark = func(chain string) {
		if foreign[chain] || named[chain] == ownNetwork || !strings.HasPrefix(chain, "CNI-") {
			return
		}
		foreign[chain] = true
		for _, next := range links[chain] {
			mark(next)
		}
	}
	for _, chain := range firewallChains {
		foreign[chain] = true
	}
	for chain, name := range named {
		if name != ownNetwork {
			mark(chain)
		}
	}
	return foreign
}

// perContainer reports whether a chain belongs to one container, and so to one network.
func perContainer(chain string) bool {
	return strings.HasPrefix(chain, "CNI-") && !strings.HasPrefix(chain, "CNI-HOSTPORT-") &&
		!slices.Contains(firewallChains, chain)
}

// inhabited are the network namespaces that processes live in, by inode. Those of our pods are
// empty when their mounts are removed: their processes have ended before.
func inhabited() (map[uint64]bool, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	inodes := map[uint64]bool{}
	for _, path := range paths {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		if err == nil {
			inodes[st.Ino] = true
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) &&
			!errors.Is(err, unix.EACCES) {
			return nil, &os.PathError{Op: "stat", Path: path, Err: err}
		}
	}
	return inodes, nil
}
