package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"strings"
)

// firewalld is the firewall of that name. What is in its zones' files it has again after each of
// its reloads.
type firewalld struct {
	host *Host
	zone string
}

const (
	// firewalldTable is where firewalld keeps its rules (FirewallBackend=nftables).
	firewalldTable = "firewalld"
	firewalldDir   = "/etc/firewalld"
	// trustedZone lets everything pass (firewalld.zones(5)).
	trustedZone = "trusted"
)

// defaultZone is the zone of interfaces that are in none.
func (h *Host) defaultZone() string {
	data, _ := h.ReadFile(firewalldDir + "/firewalld.conf")
	for line := range strings.Lines(string(data)) {
		if zone, ok := strings.CutPrefix(strings.TrimSpace(line), "DefaultZone="); ok && zone != "" {
			return zone
		}
	}
	return "public"
}

func (f firewalld) observe(_ context.Context, r rule) (open, drops bool, err error) {
	running, err := f.running()
	if err != nil {
		return false, false, err
	}
	zone, _, element := f.setting(r)
	for _, dir := range []string{firewalldDir, "/usr/lib/firewalld"} {
		data, err := f.host.ReadFile(path.Join(dir, "zones", zone+".xml"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, running, fmt.Errorf("cannot read zone %s: %w", zone, err)
		}
		return strings.Contains(string(data), element), running, nil
	}
	return false, running, nil
}

// running tells whether firewalld's rules are in force.
func (f firewalld) running() (bool, error) {
	chain, err := f.host.Kernel.Filter("inet", firewalldTable, "filter_INPUT")
	return chain.Name != "", err
}

// setting is the zone that a rule is in, the option of firewall-cmd without its verb, and how the
// zone's file has it.
func (f firewalld) setting(r rule) (zone, option, element string) {
	switch {
	case r.how == "tcp" || r.how == "udp":
		return f.zone, "port=" + r.what + "/" + r.how,
			fmt.Sprintf(`<port port="%s" protocol="%s"/>`, r.what, r.how)
	case isNetwork(r.what):
		return trustedZone, "source=" + r.what, fmt.Sprintf(`<source address="%s"/>`, r.what)
	default:
		return trustedZone, "interface=" + r.what, fmt.Sprintf(`<interface name="%s"/>`, r.what)
	}
}

func isNetwork(s string) bool {
	_, err := netip.ParsePrefix(s)
	return err == nil
}

// opening changes what is in force first: what is in the file counts as done.
func (f firewalld) opening(r rule) [][]string {
	zone, option, _ := f.setting(r)
	return [][]string{
		{"firewall-cmd", "--zone=" + zone, "--add-" + option},
		{"firewall-cmd", "--permanent", "--zone=" + zone, "--add-" + option},
	}
}

func (f firewalld) closing(r rule) ([][]string, error) {
	zone, option, _ := f.setting(r)
	running, err := f.running()
	if !running {
		return [][]string{{"firewall-offline-cmd", "--zone=" + zone, "--remove-" + option}}, err
	}
	return [][]string{
		{"firewall-cmd", "--zone=" + zone, "--remove-" + option},
		{"firewall-cmd", "--permanent", "--zone=" + zone, "--remove-" + option},
	}, nil
}
