package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// findings are what a cluster says of itself.
type findings struct {
	version  string // of Kubernetes
	dns      string // address of the cluster's DNS; "" when it has no Service kube-dns
	uid      string // of the Service default/kubernetes
	warnings []string
}

// errRefused is an API server that belongs to another registration.
var errRefused = errors.New("the API server is registered already")

// probe asks the cluster what nodes are told of it, and writes what is new. Without an error the
// cluster is this registration's.
func (w *worker) probe(ctx context.Context, s *session) error {
	row, err := w.Index.Cluster(w.key)
	if err != nil {
		return err
	}
	found, err := s.connection.ask(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.noteFailure(ctx, err)
		}
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
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing, w.asked = noTime, row.Value.Version
	return nil
}

// ping asks the cluster whether it answers.
func (w *worker) ping(ctx context.Context, s *session) error {
	inner, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if _, err := s.connection.version(inner); err != nil {
		if ctx.Err() == nil {
			w.noteFailure(ctx, err)
		}
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = noTime
	return nil
}

// version asks the cluster for its version.
func (c *Connection) version(ctx context.Context) (string, error) {
	if c.Version != nil {
		return c.Version(ctx)
	}
	body, err := c.Watches.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("cannot ask the cluster for its version: %w", err)
	}
	var info version.Info
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("cannot read the version of the cluster: %w", err)
	}
	return info.GitVersion, nil
}

// ask asks the cluster all there is to ask.
func (c *Connection) ask(ctx context.Context) (findings, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	text, err := c.version(ctx)
	if err != nil {
		return findings{}, err
	}
	f := findings{}
	f.version, _, _ = strings.Cut(strings.TrimPrefix(text, "v"), "+")
	services := c.Watches.CoreV1()
	own, err := services.Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return f, fmt.Errorf("cannot ask which cluster it is (Service default/kubernetes; the "+
			"operator of the cluster allows it with rbac-provider.yaml): %w", err)
	}
	f.uid = string(own.UID)
	dns, err := services.Services(metav1.NamespaceSystem).Get(ctx, "kube-dns", metav1.GetOptions{})
	switch {
	case err == nil:
		f.dns = dns.Spec.ClusterIP
	case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return f, fmt.Errorf("cannot ask the cluster for its DNS service: %w", err)
	}
	f.warnings = c.approvals(ctx)
	return f, nil
}

// approvals warns when requests with our tokens are approved by kube-controller-manager: it asks
// whether their senders may create certificatesigningrequests/nodeclient (Kubernetes, "TLS
// bootstrapping", Approval). Tokens would not be for one machine then.
func (c *Connection) approvals(ctx context.Context) []string {
	review := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
		User:   "system:bootstrap:flexno",
		Groups: []string{"system:bootstrappers", TokenGroup, "system:authenticated"},
		ResourceAttributes: &authorization.ResourceAttributes{
			Group: "certificates.k8s.io", Resource: "certificatesigningrequests",
			Subresource: "nodeclient", Verb: "create",
		},
	}}
	answer, err := c.Watches.AuthorizationV1().SubjectAccessReviews().
		Create(ctx, review, metav1.CreateOptions{})
	switch {
	case err != nil:
		return []string{"It is not known whether other approvers accept certificate requests of " +
			"the group " + TokenGroup + ": the provider may not create subjectaccessreviews " +
			"(rbac-provider.yaml allows it)."}
	case answer.Status.Allowed:
		return []string{"The cluster approves certificate requests of the group " + TokenGroup +
			" by itself: a bootstrap token admits any node. Remove the binding of " +
			"system:certificates.k8s.io:certificatesigningrequests:nodeclient to that group or " +
			"to system:bootstrappers."}
	}
	return nil
}

// facts are what nodes are told of a cluster that is reached in this way.
func (c *Connection) facts(row flexnode.Cluster, f findings, tenant string) flexnode.Facts {
	facts := flexnode.Facts{
		ServerURL: c.ServerURL, CACertData: base64.StdEncoding.EncodeToString(c.CA),
		DNSServiceIP: f.dns, TenantID: tenant, Location: row.Location,
	}
	if own := row.Properties.ServerURL; own != "" {
		facts.ServerURL = strings.TrimSuffix(own, "/")
	}
	if own := row.Properties.DNSServiceIP; own != "" {
		facts.DNSServiceIP = own
	}
	return facts
}

// noteFindings writes what a cluster has said. The API server becomes this registration's, unless
// it is another's: then this one has failed.
func (w *worker) noteFindings(ctx context.Context, s *session, f findings) error {
	var refused error
	ahead := []string{w.Store.Clusters.Key(w.key), w.Store.APIServers.Key(f.uid)}
	_, err := w.Store.Update(ctx, "cluster probed", ahead, func(v *store.View) error {
		refused = nil
		v.Fence(w.owner.Fence())
		row, err := w.Store.Clusters.In(v, w.key)
		if err != nil {
			return err
		}
		if !row.Exists() {
			return errGone
		}
		next := row.Value
		refused, err = w.claimAPIServer(v, &next, f.uid)
		if err == nil && refused == nil && !deleting(next) {
			next.Properties.KubernetesVersion, next.Probe.Warnings = f.version, f.warnings
			err = w.putFacts(v, s, &next, f)
		}
		next.Probe.Unreachable = ""
		if usable := refused == nil; next.Properties.Reachable != usable {
			next.Properties.Reachable, next.Probe.Since = usable, w.Now().UTC()
		}
		if err != nil || reflect.DeepEqual(next, row.Value) {
			return err
		}
		return w.Store.Clusters.Put(v, w.key, next)
	})
	if err == nil && refused != nil {
		w.Audit.Warn("registration refused", "cluster", w.key, slog.Any("error", refused))
	}
	return errors.Join(err, refused)
}

// claimAPIServer has an API server belong to the registration. refused tells why it does not.
func (w *worker) claimAPIServer(
	v *store.View, c *flexnode.Cluster, uid string,
) (refused, err error) {
	holder, err := w.Store.APIServers.In(v, uid)
	if err != nil {
		return nil, err
	}
	if holder.Exists() && holder.Value != w.key {
		other, err := w.Store.Clusters.In(v, holder.Value)
		if err != nil {
			return nil, err
		}
		if other.Exists() { // else its registration has ended
			c.Properties.ProvisioningState = api.Failed
			c.Probe.Refused = "The API server belongs to another registration already. Delete one " +
				"of the two, or correct the kubeconfig."
			return fmt.Errorf("cannot register the cluster: %w", errRefused), nil
		}
	}
	if holder.Value != w.key {
		if err := w.Store.APIServers.Put(v, uid, w.key); err != nil {
			return nil, err
		}
	}
	if c.APIServer != "" && c.APIServer != uid {
		was, err := w.Store.APIServers.In(v, c.APIServer)
		if err != nil {
			return nil, err
		}
		if was.Value == w.key {
			w.Store.APIServers.Delete(v, c.APIServer)
		}
	}
	c.APIServer, c.Probe.Refused, c.Properties.ProvisioningState = uid, "", ""
	return nil, nil
}

// putFacts has the registration refer to what its nodes are told now.
func (w *worker) putFacts(v *store.View, s *session, c *flexnode.Cluster, f findings) error {
	id, err := arm.Parse(c.ID)
	if err != nil {
		return err
	}
	tenant, err := w.tenantOf(v, id.Subscription)
	if err != nil {
		return err
	}
	layer := flexnode.FactsLayer(s.connection.facts(*c, f, tenant), c.ID)
	c.Facts = flexnode.ContentID(layer)
	return w.putLayer(v, c.Facts, layer)
}

// putLayer writes a layer, if it is not there.
func (w *worker) putLayer(v *store.View, id string, layer []byte) error {
	known, err := w.Store.Layers.In(v, id)
	if err != nil || known.Exists() {
		return err
	}
	return w.Store.Layers.Put(v, id, layer)
}

// tenantOf is the tenant of a subscription, as ARM has told it.
func (w *worker) tenantOf(v *store.View, subscription string) (string, error) {
	row, err := w.Store.Subscriptions.In(v, strings.ToLower(subscription))
	if err != nil {
		return "", err
	}
	var properties struct {
		TenantID string `json:"tenantId"`
	}
	if len(row.Value.Properties) > 0 &&
		json.Unmarshal(row.Value.Properties, &properties) == nil && properties.TenantID != "" {
		return properties.TenantID, nil
	}
	return w.TenantID, nil
}
