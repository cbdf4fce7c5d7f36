package agent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// preflight finds out, before anything is touched, whether this machine can become the node: all that stands against it is in
// the error. What is ours already does not count as foreign.
func (s *session) preflight(ctx context.Context, c config.Config) error {
	seen, err := s.Machine.Facts(ctx, query(c))
	if err != nil {
		return err
	}
	if err := supported(seen); err != nil {
		return err
	}
	problems := []error{s.tools(seen), s.room(seen), s.foreignUnits(seen), s.foreignState(ctx, c)}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if s.joined(c) {
		return nil
	}
	if err := s.identifiable(ctx, c); err != nil {
		return err
	}
	return s.reach(ctx, c)
}

// supported tells whether this is a system that we know.
func supported(seen host.Facts) error {
	switch {
	case seen.UID != 0:
		return errors.New("cannot run without root: start it with sudo")
	case seen.Arch != "amd64" && seen.Arch != "arm64":
		return fmt.Errorf("cannot use this machine: its architecture is %s; amd64 and arm64 are supported", seen.Arch)
	case !systems[seen.OSID].includes(seen.OSVersion):
		return fmt.Errorf("cannot use this system, %s: Ubuntu 22.04 or later and Debian 12 or later are supported", seen.OSName)
	case !seen.Systemd:
		return errors.New("cannot use this machine: systemd is not running as its init")
	}
	return nil
}

// systems are the oldest versions that we know, by their ID in os-release(5).
var systems = map[string]version{"ubuntu": {22, 4}, "debian": {12, 0}}

type version [2]int

// includes tells whether text is this version or a later one.
func (v version) includes(text string) bool {
	major, minor, _ := strings.Cut(text, ".")
	m, err := strconv.Atoi(major)
	if err != nil || v[0] == 0 {
		return false
	}
	n, _ := strconv.Atoi(minor) // Debian has no minor version
	return m > v[0] || m == v[0] && n >= v[1]
}

// tools tells what the system lacks that a node's programs call.
func (s *session) tools(seen host.Facts) error {
	if seen.IPTables {
		return nil
	}
	return errors.New("iptables is not installed, and the pod network needs it: apt-get install iptables")
}

// leastRoom is the free space that the artifacts and the first images need, in bytes.
const leastRoom = 2 << 30

func (s *session) room(seen host.Facts) error {
	var errs []error
	for dir, free := range seen.Free {
		if free < leastRoom && !s.engine.Journal.Exists() {
			errs = append(errs, fmt.Errorf("only %d MB are free below %s; a node needs at least %d MB", free>>20, dir, leastRoom>>20))
		}
	}
	return errors.Join(errs...)
}

// foreignUnits finds a container runtime or kubelet that somebody else has installed. Two of them on one machine break each
// other, so it is theirs or ours.
func (s *session) foreignUnits(seen host.Facts) error {
	var errs []error
	for _, unit := range seen.Units {
		if _, ours := s.engine.Journal.Ledger().Entry(state.UnitKey(unit.Name)); ours {
			continue
		}
		errs = append(errs, fmt.Errorf("%s is installed already (%s); remove what it belongs to, or use another machine", unit.Name, unit.Path))
	}
	return errors.Join(errs...)
}

// foreignState finds what an earlier node has left in the directories that will be ours.
func (s *session) foreignState(ctx context.Context, c config.Config) error {
	var errs []error
	for _, dir := range []string{c.Paths.Kubernetes.KubeletDir, "/var/lib/containerd"} {
		key := state.PathKey(dir)
		if _, ours := s.engine.Journal.Ledger().Entry(key); ours {
			continue
		}
		is, err := s.Machine.Observe(ctx, key)
		if err != nil {
			return err
		}
		if d, ok := is.(state.Dir); ok && !d.Empty {
			errs = append(errs, fmt.Errorf("%s is not empty: it holds the state of an earlier node; move it away or remove it", path.Clean(dir)))
		}
	}
	return errors.Join(errs...)
}

// reach makes sure that the API server can be reached and accepts the credential, layer by layer. An Arc identity may not be there
// yet: it is tried once the machine is connected.
func (s *session) reach(ctx context.Context, c config.Config) error {
	where, err := s.cluster(ctx, c)
	if err != nil {
		return err
	}
	target := kube.Target{Server: where.Server, CA: []byte(where.CA), Proxy: c.ProxyFunc()}
	if s.credentialed(c) && !c.Azure.ShowsToken() { // with its certificate, kubelet needs no longer what it joined with
		return kube.Probe(ctx, target)
	}
	if token := c.Azure.BootstrapToken; token != nil {
		target.Token = token.Token.Reveal()
		return kube.Probe(ctx, target)
	}
	target.Entra = true
	if c.Azure.AuthMode() == config.AuthArc && !s.enrolled {
		return kube.Probe(ctx, target)
	}
	if target.Token, err = s.kubeletToken(ctx, c); err != nil {
		return err
	}
	if err := kube.Probe(ctx, target); err != nil {
		return err
	}
	if ok, err := s.authorised(ctx, c, target.Token); err != nil || ok {
		return err
	}
	_, role := needed(c)
	return fmt.Errorf("cannot join the cluster: it does not authorise the configured identity, which needs %s; a role assignment takes some minutes to have an effect", role)
}
