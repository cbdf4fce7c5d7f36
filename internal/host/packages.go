package host

import (
	"slices"
	"strings"
)

// packages reads from dpkg's records (dpkg(1), /var/lib/dpkg/status) what can go wrong with
// packages under a node. A machine without dpkg has none.
func (h *Host) packages(x *Examination) {
	text, _ := h.ReadFile("/var/lib/dpkg/status")
	for stanza := range strings.SplitSeq(string(text), "\n\n") {
		name, words := "", []string(nil) // of Status: what is wanted, an error, what it is
		for line := range strings.Lines(stanza) {
			if v, ok := strings.CutPrefix(line, "Package: "); ok {
				name = strings.TrimSpace(v)
			} else if v, ok := strings.CutPrefix(line, "Status: "); ok {
				words = strings.Fields(v)
			}
		}
		if len(words) != 3 {
			continue
		}
		held, is := words[0] == "hold", words[2]
		switch {
		case is == "not-installed" || is == "config-files":
		// Only a trigger of another package may be awaited, which is done with that.
		case words[1] != "ok" || is != "installed" && !strings.HasPrefix(is, "triggers-"):
			x.Unfinished = append(x.Unfinished, name)
		case held && name == "aks-flex-node":
			x.Held = append(x.Held, name)
		case !held && slices.Contains(runtimes, name):
			x.Upgradable = append(x.Upgradable, name)
		}
	}
}

// runtimes are the packages whose upgrade starts a container runtime or a kubelet again, or puts
// other programs of that name beside the node's.
var runtimes = []string{"containerd", "containerd.io", "cri-o", "docker-ce", "docker.io", "kubelet",
	"moby-containerd", "moby-engine"}
