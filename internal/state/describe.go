package state

import (
	"fmt"
	"strings"
)

// Describe says what a change does, as a phrase that follows "cannot" or stands alone: "write /etc/x", "start kubelet.service".
func Describe(c Change) string {
	if c.Undo {
		return describeUndo(c)
	}
	switch to := c.To.(type) {
	case Absent:
		return "remove " + to.Path
	case Dir:
		if c.From != nil && Equal(c.From, to) {
			return "claim directory " + to.Path
		}
		return "make directory " + to.Path
	case File:
		if _, ok := c.From.(File); ok {
			return "rewrite " + to.Path
		}
		return "write " + to.Path
	case Link:
		return "link " + to.Path
	case Unit:
		return describeUnit(c, to)
	case Sysctl:
		return fmt.Sprintf("set %s to %s", to.Name, to.Value)
	case Module:
		return "load module " + to.Name
	case Swap:
		return "turn off swap on " + to.Name
	case Residue:
		return fmt.Sprintf("remember %s", residueName(to))
	default:
		panic(fmt.Sprintf("internal error: resource of unknown type %T", to))
	}
}

func describeUnit(c Change, to Unit) string {
	from, _ := c.From.(Unit)
	var verbs []string
	if from.Enabled != to.Enabled {
		switch to.Enabled {
		case Enabled:
			verbs = append(verbs, "enable")
		case Masked:
			verbs = append(verbs, "mask")
		default:
			verbs = append(verbs, "disable")
		}
	}
	switch {
	case c.Restart:
		verbs = append(verbs, "restart")
	case to.Active && !from.Active:
		verbs = append(verbs, "start")
	case !to.Active && from.Active:
		verbs = append(verbs, "stop")
	}
	return strings.Join(verbs, " and ") + " " + to.Name
}

func describeUndo(c Change) string {
	switch to := c.To.(type) {
	case Absent:
		return "remove " + to.Path
	case Dir:
		return "restore directory " + to.Path
	case File:
		return "restore " + to.Path
	case Link:
		return "restore link " + to.Path
	case Unit:
		return strings.TrimSpace(describeUnit(c, to))
	case Sysctl:
		return fmt.Sprintf("restore %s to %s", to.Name, to.Value)
	case Module:
		return "unload module " + to.Name
	case Swap:
		return "turn on swap on " + to.Name
	case Residue:
		return "remove " + residueName(to)
	default:
		panic(fmt.Sprintf("internal error: resource of unknown type %T", to))
	}
}

func residueName(r Residue) string {
	switch r.Kind {
	case Interfaces:
		return "network interface " + r.Match
	case Chains:
		return "iptables chains " + r.Match + "*"
	case Cgroups:
		return "control group " + r.Match
	case Processes:
		return "processes of " + r.Match
	default:
		return "mounts " + r.Match + "*"
	}
}

// Show says what a resource is, for people: "mode 0644, sha256 1234abcd", "a link to /x", "absent". It never shows content.
func Show(r Resource) string {
	switch r := r.(type) {
	case Absent:
		return "absent"
	case Dir:
		return fmt.Sprintf("a directory of mode %04o, owner %d:%d", r.Mode.Perm(), r.UID, r.GID)
	case File:
		return fmt.Sprintf("a file of mode %04o, owner %d:%d, sha256 %.12s", r.Mode.Perm(), r.UID, r.GID, r.SHA256)
	case Link:
		return "a link to " + r.Target
	case Unit:
		return fmt.Sprintf("%s and %s", r.Enabled, activity(r.Active))
	case Sysctl:
		return r.Value
	case Module:
		if r.Loaded {
			return "loaded"
		}
		return "not loaded"
	case Swap:
		if r.On {
			return "on"
		}
		return "off"
	case Residue:
		if len(r.Found) == 0 {
			return "none"
		}
		return strings.Join(r.Found, ", ")
	default:
		panic(fmt.Sprintf("internal error: resource of unknown type %T", r))
	}
}

func activity(active bool) string {
	if active {
		return "running"
	}
	return "stopped"
}
