package host

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// firewalld is the firewall of that name. Each reload applies the files of its zones.
type firewalld struct {
	host *Host
	zone string
}

const (
	firewalldTable = "firewalld" // the table that firewalld uses (FirewallBackend=nftables)
	firewalldDir   = "/etc/firewalld"
)

func (h *Host) defaultZone() string {
	return cmp.Or(h.settings(firewalldDir + "/firewalld.conf")["DefaultZone"], "public")
}

func (f firewalld) observe(r rule) (open, drops bool, err error) {
	running, err := f.running()
	if err != nil {
		return false, false, err
	}
	zone, _ := f.setting(r)
	is, err := f.host.firewalldZone(zone)
	return is.lets(r), running, err
}

// firewalldZone holds the elements of a zone's file in which our rules may appear.
type firewalldZone struct {
	Ports      []firewalldElement `xml:"port"`
	Interfaces []firewalldElement `xml:"interface"`
}

type firewalldElement struct {
	Port     string `xml:"port,attr"`
	Protocol string `xml:"protocol,attr"`
	Name     string `xml:"name,attr"`
}

// firewalldZone reads the zone called name; one without a file is empty.
func (h *Host) firewalldZone(name string) (zone firewalldZone, err error) {
	for _, dir := range []string{firewalldDir, "/usr/lib/firewalld"} {
		data, err := h.ReadFile(path.Join(dir, "zones", name+".xml"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = xml.Unmarshal(data, &zone)
		}
		if err != nil {
			return firewalldZone{}, fmt.Errorf("cannot read zone %s: %w", name, err)
		}
		return zone, nil
	}
	return zone, nil
}

// lets reports whether the zone accepts a rule's packets, perhaps through a wider range of ports.
func (z firewalldZone) lets(r rule) bool {
	first, last, ok := ends(r.what)
	return z.has(r) || slices.ContainsFunc(z.Ports, func(p firewalldElement) bool {
		from, to, isRange := ends(p.Port)
		return ok && isRange && p.Protocol == r.how && from <= first && last <= to
	})
}

func (z firewalldZone) has(r rule) bool {
	if r.isPort() {
		return slices.Contains(z.Ports, firewalldElement{Port: r.what, Protocol: r.how})
	}
	return slices.Contains(z.Interfaces, firewalldElement{Name: r.what})
}

// ends returns the ends of a range of ports or processors, as 30000-32767; a number is a range too.
func ends(s string) (first, last uint64, ok bool) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)
	return first, last, err1 == nil && err2 == nil
}

func (f firewalld) running() (bool, error) {
	chain, err := f.host.filter("inet", firewalldTable, "filter_INPUT")
	return chain.Name != "", err
}

// setting returns the zone of a rule, and the option of firewall-cmd without its verb.
func (f firewalld) setting(r rule) (zone, option string) {
	if r.isPort() {
		return f.zone, "port=" + r.what + "/" + r.how
	}
	return "trusted", "interface=" + r.what // it accepts all packets (firewalld.zones(5))
}

// commands changes the file first to open, and last to close: a rule in the file counts as open and
// is removed at the end, even if a run ended between the two commands. It leaves a wider range of
// the owner's.
func (f firewalld) commands(r rule, open bool) ([][]string, error) {
	name, option := f.setting(r)
	zone, add, remove := "--zone="+name, "--add-"+option, "--remove-"+option
	if open {
		return [][]string{{"firewall-cmd", "--permanent", zone, add}, {"firewall-cmd", zone, add}}, nil
	}
	is, err := f.host.firewalldZone(name)
	if err != nil || !is.has(r) {
		return nil, err
	}
	if running, err := f.running(); !running {
		return [][]string{{"firewall-offline-cmd", zone, remove}}, err
	}
	return [][]string{
		{"firewall-cmd", zone, remove}, {"firewall-cmd", "--permanent", zone, remove},
	}, nil
}
