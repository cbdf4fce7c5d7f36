package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	certificates "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// judgeServing decides on a request for the serving certificate of a Node's kubelet (Kubernetes,
// "Certificate Signing Requests", kubernetes.io/kubelet-serving). It may name the Node and
// addresses of the Node, none of them another's (taken) or the cluster's own. The error is a
// denial, or the reason to wait: a Node's addresses follow its request.
func judgeServing(
	csr *certificates.CertificateSigningRequest, n *seenNode, own reserved,
	taken func(netip.Addr) bool,
) error {
	r, flaw := parseRequest(csr.Spec.Request)
	if flaw != "" {
		return denial(flaw)
	}
	name := n.name
	user := "system:node:" + name
	switch {
	case csr.Spec.Username != user || !slices.Contains(csr.Spec.Groups, "system:nodes"):
		return denial("its sender is not the node")
	case r.Subject.CommonName != user || len(r.Subject.Names) != 2 ||
		!slices.Equal(r.Subject.Organization, []string{"system:nodes"}):
		return denial("its subject is not the node")
	case !servingUsages(csr.Spec.Usages, r.PublicKeyAlgorithm):
		return denial("its usages are not those of a serving certificate")
	case len(r.EmailAddresses)+len(r.URIs) > 0:
		return denial("it names more than a host")
	case len(r.DNSNames)+len(r.IPAddresses) == 0:
		return denial("it names no host")
	case slices.ContainsFunc(r.DNSNames, func(other string) bool { return other != name }):
		return denial("it names another host")
	case len(r.DNSNames) > 0 && flexnode.IsAPIServerName(name, own.urls...):
		return denial("its node is called as the API server is")
	}
	listed := strings.Split(n.addresses, ",")
	for _, ip := range r.IPAddresses {
		addr, ok := netip.AddrFromSlice(ip)
		addr = addr.Unmap()
		switch {
		case !ok || !addr.IsGlobalUnicast():
			return denial("it names an address that is no host's: " + ip.String())
		case slices.Contains(own.addresses, addr):
			return denial("it names an address of the cluster's own: " + addr.String())
		case len(own.services) == 0:
			return errors.New("the address of the Service default/kubernetes is not known")
		case slices.Contains(own.services, addr):
			return denial("it names the address of a Service of the cluster: " + addr.String())
		case taken(addr):
			return fmt.Errorf("it names an address of another host: %s", addr)
		case !slices.Contains(listed, addr.String()):
			return fmt.Errorf("it names an address that its Node does not list: %s", addr)
		}
	}
	return nil
}

// servingUsages reports whether usages are those of a serving certificate. Only RSA enciphers keys.
func servingUsages(asked []certificates.KeyUsage, key x509.PublicKeyAlgorithm) bool {
	needed := sets.New(certificates.UsageDigitalSignature, certificates.UsageServerAuth)
	allowed := needed.Clone()
	if key == x509.RSA {
		allowed.Insert(certificates.UsageKeyEncipherment)
	}
	given := sets.New(asked...)
	return given.IsSuperset(needed) && allowed.IsSuperset(given)
}

// The pauses before an undecided request is reviewed again: they grow with its age.
const servingFirst, servingLast = 2 * time.Second, 5 * time.Minute

// serving decides on a request for the serving certificate of a flex node of this cluster, like
// client. Other approvers decide on those of other Nodes. The time is that of the next review.
func (r *review) serving(ctx context.Context) (message string, again time.Time, err error) {
	name := r.sender
	r.a = credential.Application{Name: r.csr.Name, Node: name}
	ours, err := r.Store.Nodes.Get(ctx, r.key+"/"+name)
	if err != nil || !ours.Exists() {
		return "", noTime, err
	}
	age := time.Since(r.csr.CreationTimestamp.Time)
	again = time.Now().Add(min(max(age/4, servingFirst), servingLast))
	node := r.s.node(name)
	if node == nil || !r.s.nodesKnown.Load() {
		return "", again, nil
	}
	if r.s.other(node) { // it has the name of a flex node, but is none
		return "", noTime, nil
	}
	own, err := r.reserved(r.s)
	if err != nil {
		return "", noTime, err
	}
	err = judgeServing(r.csr, node, own, func(a netip.Addr) bool { return r.s.isTaken(name, a) })
	if _, denied := errors.AsType[denial](err); err != nil && !denied {
		r.log.Debug("request for a serving certificate waits", "csr", r.csr.Name, "why", err)
		return "", again, nil
	}
	return "The serving certificate of this node, for its name and addresses.", noTime, err
}

// reserved holds names and addresses of the API server and of the cluster's DNS. Their clients
// trust the CA of serving certificates too, and a Node may list any address as its own.
type reserved struct {
	urls      []string     // of the API server
	addresses []netip.Addr // of its URLs, and of DNS in the registration
	services  []netip.Addr // in the cluster; none while they are unknown
}

func (w *worker) reserved(s *session) (reserved, error) {
	row, err := w.Index.Cluster(w.key)
	if err != nil {
		return reserved{}, err
	}
	p := row.Value.Properties
	r := reserved{urls: []string{s.ServerURL, p.ServerURL}}
	texts := []string{p.DNSServiceIP}
	for _, text := range r.urls {
		if u, err := url.Parse(text); err == nil {
			texts = append(texts, u.Hostname())
		}
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			r.addresses = append(r.addresses, a.Unmap())
		}
	}
	if found := s.found.Load(); found != nil {
		r.services = found.services
	}
	return r, nil
}

// isTaken reports whether an address is that of another Node. It looks the address up, since a
// cluster may have many Nodes, and requests with many addresses.
func (s *session) isTaken(name string, a netip.Addr) bool {
	names, err := s.nodes.IndexKeys(byAddress, a.String())
	return err != nil || slices.ContainsFunc(names, func(other string) bool { return other != name })
}

// byAddress is the index of Nodes by their addresses.
const byAddress = "address"

// addressesOf returns the keys of byAddress for a Node.
func addressesOf(o any) ([]string, error) {
	if n, ok := o.(*seenNode); ok && n.addresses != "" {
		return strings.Split(n.addresses, ","), nil
	}
	return nil, nil
}
