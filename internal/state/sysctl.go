package state

import (
	"fmt"
	"strings"
)

// Sysctl is a kernel parameter's value, by its dotted name; "" while its module is not loaded.
type Sysctl struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (r Sysctl) Key() Key { return Key("sysctl:" + r.Name) }

// The names of an interface's IPv6 parameters. Its own dots are written as slashes (sysctl(8)).
const ofInterface, acceptRA = "net.ipv6.conf.", ".accept_ra"

// AcceptRA returns the parameter for accepting router advertisements at an interface.
func AcceptRA(name string) string {
	return ofInterface + strings.ReplaceAll(name, ".", "/") + acceptRA
}

// Advertised returns the network interface of an AcceptRA parameter; "" for any other parameter.
func (r Sysctl) Advertised() string {
	name, isInterface := strings.CutPrefix(r.Name, ofInterface)
	name, isAcceptRA := strings.CutSuffix(name, acceptRA)
	if !isInterface || !isAcceptRA {
		return ""
	}
	return strings.ReplaceAll(name, "/", ".")
}

// satisfiedBy accepts a missing interface, such as one that was unplugged, which has no parameters,
// and one whose router advertisements the kernel leaves to another program, as systemd-networkd.
func (r Sysctl) satisfiedBy(seen Resource) bool {
	is, ok := seen.(Sysctl)
	return ok && (is.Value == r.Value || r.Advertised() != "" && is.Value != "1")
}

func (r Sysctl) describe(c Change) string {
	return fmt.Sprintf("%s %s to %s", either(c.Undo, "restore", "set"), r.Name, r.Value)
}

func (r Sysctl) show() string { return r.Value }
