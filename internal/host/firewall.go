package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Firewall is what there is of packet filters on the machine, as their own tools and files say it.
type Firewall struct {
	// UFW tells that ufw is enabled; UFWRules are its rules.
	UFW      bool
	UFWRules string
	// Firewalld tells that firewalld runs; Zones are the files of its zones.
	Firewalld bool
	Zones     string
	// IPTables and NFT are the rules; "" without the tool, or where the others answer for them.
	IPTables, NFT string
}

// Firewall finds out about packet filters. It changes nothing. It runs iptables-save and nft where
// neither ufw nor firewalld is in charge.
func (h *Host) Firewall(ctx context.Context) (Firewall, error) {
	var f Firewall
	conf, err := h.readText("/etc/ufw/ufw.conf")
	if err != nil {
		return f, err
	}
	for line := range strings.Lines(conf) {
		f.UFW = f.UFW || strings.TrimSpace(line) == "ENABLED=yes"
	}
	if f.UFW {
		f.UFWRules, err = h.readText("/etc/ufw/user.rules")
		return f, err
	}
	is, err := h.Systemd.Unit(ctx, "firewalld.service")
	if err != nil {
		return f, fmt.Errorf("cannot observe firewalld: %w", err)
	}
	if f.Firewalld = is.Running(); f.Firewalld {
		f.Zones, err = h.zones()
		return f, err
	}
	if h.Root != "" { // the rules are those of this machine, and not of the one below the root
		return f, nil
	}
	if f.IPTables, err = saveRules(ctx, "iptables"); err != nil {
		return f, err
	}
	if tool, missing := exec.LookPath("nft"); missing == nil {
		out, err := exec.CommandContext(ctx, tool, "list", "ruleset").Output()
		if err != nil {
			return f, fmt.Errorf("cannot read the rules of nftables: %w", err)
		}
		f.NFT = string(out)
	}
	return f, nil
}

// zones are the files of firewalld's zones that somebody has changed.
func (h *Host) zones() (string, error) {
	files, err := filepath.Glob(h.path("/etc/firewalld/zones/*.xml"))
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("cannot read firewalld's zones: %w", err)
		}
		all.Write(text)
	}
	return all.String(), nil
}

// readText reads a file that may be missing.
func (h *Host) readText(path string) (string, error) {
	data, err := h.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(data), err
}
