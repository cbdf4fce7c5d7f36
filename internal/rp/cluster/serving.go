package cluster

import (
	"context"
	"crypto/x509"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	certificates "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// verdict is the decision on a request for a serving certificate.
type verdict int

const (
	// undecided: the request may become valid, since a Node's addresses follow its request.
	undecided verdict = iota
	approved
	denied
)

// judgeServing decides on a request for the serving certificate of a Node's kubelet (Kubernetes,
// "Certificate Signing Requests", kubernetes.io/kubelet-serving). It may name the Node and
// addresses of the Node, none of them another's (taken) or the cluster's own. why is for people.
func judgeServing(
	csr *certificates.CertificateSigningRequest, n *seenNode, own reserved,
	taken func(netip.Addr) bool,
) (v verdict, why string) {
	r, flaw := parseRequest(csr.Spec.Request)
	if flaw != "" {
		return denied, flaw
	}
	name := n.name
	user := "system:node:" + name
	switch {
	case csr.Spec.Username != user || !slices.Contains(csr.Spec.Groups, "system:nodes"):
		return denied, "its sender is not the node"
	case r.Subject.CommonName != user || len(r.Subject.Names) != 2 ||
		!slices.Equal(r.Subject.Organization, []string{"system:nodes"}):
		return denied, "its subject is not the node"
	case !servingUsages(csr.Spec.Usages, r.PublicKeyAlgorithm):
		return denied, "its usages are not those of a serving certificate"
	case len(r.EmailAddresses)+len(r.URIs) > 0:
		return denied, "it names more than a host"
	case len(r.DNSNames)+len(r.IPAddresses) == 0:
		return denied, "it names no host"
	case slices.ContainsFunc(r.DNSNames, func(other string) bool { return other != name }):
		return denied, "it names another host"
	case len(r.DNSNames) > 0 && flexnode.IsAPIServerName(name, own.urls...):
		return denied, "its node is called as the API server is"
	}
	listed := strings.Split(n.addresses, ",")
	for _, ip := range r.IPAddresses {
		addr, ok := netip.AddrFromSlice(ip)
		addr = addr.Unmap()
		switch {
		case !ok || !addr.IsGlobalUnicast():
			return denied, "it names an address that is no host's: " + ip.String()
		case slices.Contains(own.addresses, addr):
			return denied, "it names an address of the cluster's own: " + addr.String()
		case len(own.services) == 0:
			return undecided, "the address of the Service default/kubernetes is not known"
		case slices.Contains(own.services, addr):
			return denied, "it names the address of a Service of the cluster: " + addr.String()
		case taken(addr):
			return undecided, "it names an address of another host: " + addr.String()
		case !slices.Contains(listed, addr.String()):
			return undecided, "it names an address that its Node does not list: " + addr.String()
		}
	}
	return approved, ""
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
const (
	servingFirst = 2 * time.Second
	servingLast  = 5 * time.Minute
)

// reviewServing decides on a request for the serving certificate of a flex node of this cluster.
// Other approvers decide on those of other Nodes. The time is that of the next review.
func (w *worker) reviewServing(
	ctx context.Context, s *session, csr *certificates.CertificateSigningRequest,
) (time.Time, error) {
	name, _ := strings.CutPrefix(csr.Spec.Username, "system:node:")
	if a := answersOf(csr); a.approved || a.denied || a.issued {
		return noTime, nil
	}
	ours, err := w.Store.Nodes.Get(ctx, w.key+"/"+name)
	if err != nil || !ours.Exists() {
		return noTime, err
	}
	age := time.Since(csr.CreationTimestamp.Time)
	again := time.Now().Add(min(max(age/4, servingFirst), servingLast))
	node := s.node(name)
	if node == nil || !s.nodesKnown.Load() {
		return again, nil
	}
	if node.other() { // it has the name of a flex node, but is none
		return noTime, nil
	}
	own, err := w.reserved(s)
	if err != nil {
		return again, err
	}
	v, why := judgeServing(csr, node, own, func(a netip.Addr) bool { return s.isTaken(name, a) })
	switch v {
	case approved:
		err = w.approve(ctx, s, csr,
			"The serving certificate of this node, for its name and addresses.")
	case denied:
		a := credential.Application{Name: csr.Name, Node: name}
		err = w.deny(ctx, s, csr, a, "", why)
	default:
		w.log.Debug("request for a serving certificate waits", "csr", csr.Name, "why", why)
		return again, nil
	}
	if apierrors.IsForbidden(err) { // the cluster has the previous roles
		w.log.Warn("cannot answer requests for serving certificates; apply rbac-provider.yaml",
			"csr", csr.Name, "error", err)
		return time.Now().Add(servingLast), nil
	}
	return noTime, err
}

// reserved holds names and addresses of the API server and of the cluster's DNS. Their clients
// trust the CA of serving certificates too, and a Node may list any address as its own.
type reserved struct {
	urls      []string     // of the API server
	addresses []netip.Addr // of its URLs, and of DNS in the registration
	services  []netip.Addr // in the cluster; none while they are unknown
}

// reserved returns those of the cluster of a session.
func (w *worker) reserved(s *session) (reserved, error) {
	row, err := w.Index.Cluster(w.key)
	if err != nil {
		return reserved{}, err
	}
	p := row.Value.Properties
	r := reserved{urls: []string{s.connection.ServerURL, p.ServerURL}}
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
	if known := s.services.Load(); known != nil {
		r.services = *known
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
