package cluster

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// findings holds the answers of a cluster to a probe.
type findings struct {
	version string // of Kubernetes
	dns     string // address of the cluster's DNS; "" if unknown
	server  string // identifier of the API server
	// services holds the addresses of both Services; none while the API server's is unknown.
	services []netip.Addr
	warnings []string
}

// errRefused is the error for an API server that belongs to another registration.
var errRefused = errors.New("cannot register the cluster: the API server is registered already")

// probe reads the facts that nodes receive from the cluster, and writes changes. If it returns no
// error, the cluster is this registration's.
func (w *worker) probe(ctx context.Context, s *session) error {
	row, err := w.Index.Cluster(w.key)
	if err != nil {
		return err
	}
	found, err := s.ask(ctx)
	if err != nil {
		w.noteFailure(ctx, err)
		return err
	}
	if !w.owner.Valid() {
		return errNotOwner
	}
	if err := w.noteFindings(ctx, s, found); err != nil {
		if ctx.Err() == nil {
			w.log.Warn("the cluster is not used", slog.Any("error", err))
		}
		return err
	}
	s.found.Store(&found)
	w.answered()
	w.tasks.Add(task{kind: taskRevoke}) // another client may have changed the list
	w.asked.Store(row.Value.Version)
	return nil
}

func (w *worker) ping(ctx context.Context, s *session) error {
	inner, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if _, err := s.version(inner); err != nil {
		w.noteFailure(ctx, err)
		return err
	}
	w.answered()
	return nil
}

func (c *Connection) version(ctx context.Context) (string, error) {
	if c.Version != nil {
		return c.Version(ctx)
	}
	body, err := c.Client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("cannot ask the cluster for its version: %w", err)
	}
	var info version.Info
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("cannot read the version of the cluster: %w", err)
	}
	return info.GitVersion, nil
}

// ask makes all requests of a probe.
func (c *Connection) ask(ctx context.Context) (findings, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	text, err := c.version(ctx)
	if err != nil {
		return findings{}, err
	}
	f := findings{}
	f.version, _, _ = strings.Cut(strings.TrimPrefix(cut(text, maxText), "v"), "+")
	services := c.Client.CoreV1()
	own, err := services.Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return f, fmt.Errorf("cannot ask which cluster it is (Service default/kubernetes; the "+
			"operator of the cluster allows it with rbac-provider.yaml): %w", err)
	}
	f.server, f.services = c.server(string(own.UID)), clusterIPs(own)
	dns, err := services.Services(metav1.NamespaceSystem).Get(ctx, "kube-dns", metav1.GetOptions{})
	switch {
	case err == nil:
		if addresses := clusterIPs(dns); len(addresses) > 0 {
			f.dns = addresses[0].String()
		}
		if len(f.services) > 0 {
			f.services = append(f.services, clusterIPs(dns)...)
		}
	case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return f, fmt.Errorf("cannot ask the cluster for its DNS service: %w", err)
	}
	f.warnings = slices.Concat(c.approvals(ctx), c.unconfined(ctx), c.irrevocable(ctx, f.version),
		c.deletable(ctx))
	return f, nil
}

func clusterIPs(s *corev1.Service) (all []netip.Addr) {
	texts := append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...)
	for _, text := range texts[:min(len(texts), maxSubnets+1)] {
		if a, err := netip.ParseAddr(text); err == nil { // none is "" or "None"
			all = append(all, a.Unmap())
		}
	}
	return all
}

func (c *Connection) allows(
	ctx context.Context, user string, groups []string, what authorization.ResourceAttributes,
) (bool, error) {
	answer, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
			User: user, Groups: append(groups, "system:authenticated"), ResourceAttributes: &what,
		}}, metav1.CreateOptions{})
	return err == nil && answer.Status.Allowed, err
}

// approvals warns if kube-controller-manager approves requests with the provider's tokens, so that
// a token would not be for one machine: it checks whether their senders may create
// certificatesigningrequests/nodeclient (Kubernetes, "TLS bootstrapping", Approval).
func (c *Connection) approvals(ctx context.Context) []string {
	allowed, err := c.allows(ctx, "system:bootstrap:flexno",
		[]string{"system:bootstrappers", TokenGroup}, authorization.ResourceAttributes{
			Group: "certificates.k8s.io", Resource: "certificatesigningrequests",
			Subresource: "nodeclient", Verb: "create",
		})
	switch {
	case err != nil:
		return []string{"It is not known whether other approvers accept certificate requests of " +
			"the group " + TokenGroup + ": the provider may not create subjectaccessreviews " +
			"(rbac-provider.yaml allows it)."}
	case allowed:
		return []string{"The cluster approves certificate requests of the group " + TokenGroup +
			" by itself: a bootstrap token admits any node. Remove the binding of " +
			"system:certificates.k8s.io:certificatesigningrequests:nodeclient to that group or " +
			"to system:bootstrappers."}
	}
	return nil
}

// deletable warns if kubelets may delete Nodes: a compromised one could register its Node again
// without the taints that keep pods away. If the request fails, approvals warns.
func (c *Connection) deletable(ctx context.Context) []string {
	const node = "flexnode-rp-probe"
	allowed, _ := c.allows(ctx, "system:node:"+node, []string{"system:nodes"},
		authorization.ResourceAttributes{Resource: "nodes", Name: node, Verb: "delete"})
	if !allowed {
		return nil
	}
	return []string{"Nodes of the cluster may delete Nodes. The provider deletes the Nodes of " +
		"machines that leave: remove what rbac-leave.yaml has installed."}
}

// unconfined warns if the provider may create Secrets of other types than bootstrap tokens: with a
// token of a service account it would be the cluster's administrator. It tries, in a dry run.
func (c *Connection) unconfined(ctx context.Context) []string {
	probe := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "flexnode-rp-probe"}, Type: corev1.SecretTypeOpaque,
	}
	_, err := c.Client.CoreV1().Secrets(metav1.NamespaceSystem).
		Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil
	}
	return []string{"The provider may create Secrets of any type in kube-system, and so become the " +
		"administrator of the cluster. The ValidatingAdmissionPolicy of rbac-provider.yaml, for " +
		"Kubernetes 1.30 or later, refuses it: apply it with the provider's user name."}
}

func (c *Connection) facts(row flexnode.Cluster, f findings, tenant string) flexnode.Facts {
	own := row.Properties
	return flexnode.Facts{
		ServerURL:    cmp.Or(strings.TrimSuffix(own.ServerURL, "/"), c.ServerURL),
		CACertData:   base64.StdEncoding.EncodeToString(c.CA),
		DNSServiceIP: cmp.Or(own.DNSServiceIP, f.dns), TenantID: tenant, Location: row.Location,
	}
}

// noteFindings writes the findings of a probe. The API server becomes this registration's; if it is
// another's, this registration fails.
func (w *worker) noteFindings(ctx context.Context, s *session, f findings) error {
	refused := false
	ahead := []string{w.Store.Clusters.Key(w.key), w.Store.APIServers.Key(f.server)}
	err := w.update(ctx, "cluster probed", ahead, func(v *store.View) error {
		row := w.Store.Clusters.Row(v, w.key)
		if !row.Exists() || row.Value.UID != s.registration {
			return errGone
		}
		next := row.Value
		refused = !w.claimAPIServer(v, &next, f.server)
		if !refused && !next.Deleting() {
			next.Properties.KubernetesVersion, next.Probe.Warnings = f.version, f.warnings
			if w.gone.Load() {
				next.Probe.Warnings = append(slices.Clone(f.warnings), notInAzure)
			}
			v.Fail(w.putFacts(v, s, &next, f))
		}
		next.Probe.Unreachable = ""
		if next.Properties.Reachable == refused {
			next.Properties.Reachable, next.Probe.Since = !refused, time.Now().UTC()
		}
		return w.Store.Clusters.Replace(v, w.key, row.Value, next)
	})
	if err == nil && refused {
		err = errRefused
		w.Audit.Warn("registration refused", "cluster", w.key, slog.Any("error", err))
	}
	return err
}

// claimAPIServer claims an API server for the registration, unless it is another's.
func (w *worker) claimAPIServer(v *store.View, c *flexnode.Cluster, server string) bool {
	if holder := w.Store.APIServers.Row(v, server); holder.Value != w.key {
		// Otherwise the other registration has ended.
		if holder.Exists() && w.Store.Clusters.Row(v, holder.Value).Exists() {
			c.Properties.ProvisioningState = api.Failed
			c.Probe.Refused = "The API server already belongs to another registration. Delete one of " +
				"the two, or correct the kubeconfig."
			return false
		}
		v.Fail(w.Store.APIServers.Put(v, server, w.key))
	}
	if c.APIServer != server {
		w.giveBack(v, c.APIServer)
	}
	c.APIServer, c.Probe.Refused, c.Properties.ProvisioningState = server, "", ""
	return true
}

// giveBack deletes the row that assigns an API server to this registration, if it does; "" is no
// API server.
func (w *worker) giveBack(v *store.View, server string) {
	if server != "" && w.Store.APIServers.Row(v, server).Value == w.key {
		w.Store.APIServers.Delete(v, server)
	}
}

// putFacts points the registration to the facts that its nodes receive now.
func (w *worker) putFacts(v *store.View, s *session, c *flexnode.Cluster, f findings) error {
	id, _ := arm.Parse(c.ID) // it was checked
	known, err := w.Store.Layer(v.Context(), c.Facts)
	if err == nil && known != nil && f.dns == "" { // the Service cannot be read now
		f.dns = known.DNSServiceIP()
	}
	facts, warning := s.facts(*c, f, w.tenantOf(v, id.Subscription)), flexnode.NoDNS
	if facts.DNSServiceIP != "" {
		warning = fmt.Sprintf("Pods resolve no names: dnsServiceIP of the registration is %s, and the "+
			"Service kube-system/kube-dns has %s.", facts.DNSServiceIP, f.dns)
	}
	if facts.DNSServiceIP == "" || f.dns != "" && facts.DNSServiceIP != f.dns {
		c.Probe.Warnings = append(slices.Clone(c.Probe.Warnings), warning)
	}
	layer := flexnode.FactsLayer(facts, c.ID)
	if c.Facts != layer.ID { // a collection must not delete a former one that it has found unused
		v.Fail(w.Store.Layers.Put(v, layer.ID, layer.Text))
	}
	c.Facts = layer.ID
	return w.Store.KeepLayer(v, layer)
}

// tenantOf returns the tenant of a subscription, as ARM reported it, if it did.
func (w *worker) tenantOf(v *store.View, subscription string) string {
	row := w.Store.Subscriptions.Row(v, arm.Fold(subscription))
	var properties struct {
		TenantID string `json:"tenantId"`
	}
	_ = json.Unmarshal(row.Value.Properties, &properties)
	return cmp.Or(properties.TenantID, w.TenantID)
}
