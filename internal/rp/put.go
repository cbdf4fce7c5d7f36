package rp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// tries is how often a change is decided again because the rows it was decided on have changed.
const tries = 10

// patience is how long a caller waits for a cluster; what has not been done by then is done by the cluster's controller.
const patience = 8 * time.Second

// putNode creates or replaces a node. Outstanding credentials are revoked; new ones are made if the caller asks for a URL.
func (s *Server) putNode(w http.ResponseWriter, r *request) error {
	desired, secret, err := readNode(r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	p := put{desired: desired, secret: secret, url: strings.EqualFold(r.query.Get("configurl"), "true")}
	for range tries {
		done, err := s.tryPut(ctx, r, p)
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		return s.answerPut(w, r, done)
	}
	return busy()
}

func busy() error {
	return arm.Errorf(409, "Conflict", "The resource is being changed by others all the time. Try again.")
}

// put is what a PUT asks for.
type put struct {
	desired api.Desired
	secret  string
	url     bool
}

// readNode reads the body of a PUT, which may hold what a GET has shown: what the provider says is not listened to.
func readNode(r *request) (api.Desired, string, error) {
	var body struct {
		api.FlexNodeConfig
		// Location is ignored: a proxy resource has none, and `az resource create` sends one with every resource.
		Location string `json:"location"`
	}
	if err := decode(r.body, &body); err != nil {
		return api.Desired{}, "", err
	}
	for _, e := range []struct{ member, in, want string }{{"id", body.ID, r.resourceID()}, {"name", body.Name, r.names["node"]}, {"type", body.Type, api.ResourceType}} {
		if e.in != "" && !strings.EqualFold(e.in, e.want) {
			return api.Desired{}, "", arm.Errorf(400, "InvalidParameter", "The %s '%s' in the request content does not match the one in the URL, '%s'.", e.member, shorten(e.in), e.want)
		}
	}
	d := body.Properties.Desired
	complete(&d)
	if problems := checkAuth(d); len(problems) > 0 {
		return d, "", refuse(problems)
	}
	secret := ""
	if sp := d.AzureAuth.ServicePrincipal; sp != nil {
		own := *sp // what is stored with the node never holds it
		secret, own.ClientSecret = own.ClientSecret, ""
		d.AzureAuth.ServicePrincipal = &own
	}
	if state := body.Properties.ProvisioningState; state != "" && !strings.EqualFold(state, api.Succeeded) && !strings.EqualFold(state, api.Creating) && !strings.EqualFold(state, api.Updating) {
		return d, "", arm.Errorf(400, "InvalidParameter", "The provisioningState is the provider's to say; '%s' cannot be asked for.", shorten(state))
	}
	return d, secret, nil
}

// written is a node that has been written, and its credential.
type written struct {
	created    bool
	node       store.Node
	credential string
}

// tryPut decides and writes. ErrConflict means that it is to be decided again.
func (s *Server) tryPut(ctx context.Context, r *request, p put) (written, error) {
	key := r.nodeKey()
	cluster, err := s.parent(ctx, r)
	if err != nil {
		return written{}, err
	}
	old, err := s.Store.Nodes.Get(ctx, key)
	if err != nil {
		return written{}, err
	}
	if old.Value.State == api.Deleting {
		if err := s.finishDelete(ctx, old); err != nil {
			return written{}, err
		}
		return written{}, store.ErrConflict // and now it is not there any more
	}
	etag := ""
	if old.Exists() {
		etag = old.Value.ETag()
	}
	if err := r.preconditions(etag); err != nil {
		return written{}, err
	}
	txn := s.Store.Txn()
	s.Store.Clusters.Unchanged(txn, cluster)
	next := store.Node{ID: r.resourceID(), Desired: p.desired, SystemData: old.Value.SystemData}
	secretChanged, err := s.keepSecret(ctx, txn, key, old.Value, next, p.secret)
	if err != nil {
		return written{}, err
	}
	if err := s.resolve(ctx, txn, cluster, old, &next); err != nil {
		return written{}, err
	}
	if problems := checkNode(next, s.knownFacts(ctx, next), s.Defaults, grants{ClientSecret: "checked"}); len(problems) > 0 {
		return written{}, refuse(problems)
	}
	changed := !old.Exists() || secretChanged || !same(old.Value, next)
	next.Version = old.Value.Version
	if changed {
		next.Version = s.nextVersion(s.lastVersion(ctx, txn, key, old))
		next.SystemData = s.touch(old.Value.SystemData, r.caller)
	}
	if err := s.revokeOutstanding(ctx, txn, old.Value.Credential); err != nil {
		return written{}, err
	}
	if p.url {
		if next.Credential, err = s.plan(txn, key, cluster, next); err != nil {
			return written{}, err
		}
	}
	if next.Credential != "" || next.Resolved.Facts == "" {
		next.State = api.Updating
		if !old.Exists() || old.Value.State == api.Creating {
			next.State = api.Creating
		}
	}
	s.Store.Nodes.Put(txn, old, next)
	if _, err := s.commit(ctx, "node written", txn); err != nil {
		return written{}, err
	}
	r.before, r.after = old.Value.Version, next.Version
	s.revokeNow(ctx, old.Value.Credential)
	return written{created: !old.Exists(), node: next, credential: next.Credential}, nil
}

// lastVersion is the version that the new one must be above: of the node, or of the one that was deleted, whose tombstone goes.
func (s *Server) lastVersion(ctx context.Context, txn *store.Txn, key string, old store.Row[store.Node]) string {
	if old.Exists() {
		return old.Value.Version
	}
	stone, err := s.Store.Tombstones.Get(ctx, key)
	if err != nil || !stone.Exists() {
		return ""
	}
	s.Store.Tombstones.Delete(txn, stone)
	return stone.Value.Version
}

// keepSecret stores a new client secret, or keeps the one that is stored for the same client; true if that changes the
// configuration.
func (s *Server) keepSecret(ctx context.Context, txn *store.Txn, key string, old, next store.Node, secret string) (bool, error) {
	stored, known, err := s.clientSecret(ctx, key)
	if err != nil {
		return false, err
	}
	sp, was := next.Desired.AzureAuth.ServicePrincipal, old.Desired.AzureAuth.ServicePrincipal
	switch {
	case sp == nil && stored.Exists():
		s.Store.Secrets.Delete(txn, stored)
		return true, nil
	case sp == nil:
		return false, nil
	case secret == "" && known != "" && was != nil && strings.EqualFold(was.ClientID, sp.ClientID):
		s.Store.Secrets.Unchanged(txn, stored)
		return false, nil
	case secret == "":
		return false, refuse([]problem{{"properties.azureAuth.servicePrincipal.clientSecret", "The client secret is needed: none is stored for this client id."}})
	case secret == known:
		s.Store.Secrets.Unchanged(txn, stored)
		return false, nil
	}
	box, err := s.Keys.Seal("secrets/"+key, []byte(secret))
	if err != nil {
		return false, err
	}
	s.Store.Secrets.Put(txn, stored, store.Sealed{Box: box})
	return true, nil
}

// resolve adds to what is wanted what the provider decides: facts, versions, a pod subnet.
func (s *Server) resolve(ctx context.Context, txn *store.Txn, cluster store.Row[store.Cluster], old store.Row[store.Node], next *store.Node) error {
	next.Resolved.Facts = cluster.Value.Facts
	versions, problems := resolveVersions(next.Desired.Versions, cluster.Value.Properties.KubernetesVersion)
	if cluster.Value.Properties.KubernetesVersion == "" && next.Desired.Versions.Kubernetes == "" {
		problems = nil // it is the cluster's, once that is known
	}
	if len(problems) > 0 {
		return refuse(problems)
	}
	next.Resolved.Versions = versions
	next.Resolved.PodCIDR = old.Value.Resolved.PodCIDR
	if pool := cluster.Value.Properties; pool.PodCIDR != "" && next.Resolved.PodCIDR == "" {
		subnet, err := s.allocate(ctx, txn, cluster.Key, old.Key, pool.PodCIDR, pool.NodeCIDRMask)
		if err != nil {
			return err
		}
		next.Resolved.PodCIDR = subnet
	}
	return nil
}

func (s *Server) knownFacts(ctx context.Context, n store.Node) store.Facts {
	f, err := s.factsOf(ctx, n.Resolved.Facts)
	if err != nil {
		return store.Facts{}
	}
	return f
}

// answerPut does what the node's credential needs, for as long as a caller waits, and answers with the node as it is then.
func (s *Server) answerPut(w http.ResponseWriter, r *request, done written) error {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if done.credential != "" {
		if err := s.advance(ctx, done.credential); err != nil {
			s.Log.Warn("a credential is not ready yet; the controller goes on with it", "node", r.nodeKey(), "error", err)
		}
	}
	node, err := s.Store.Nodes.Get(r.Context(), r.nodeKey())
	if err != nil {
		return err
	}
	if !node.Exists() || node.Value.Version != done.node.Version { // somebody else was faster; this is what this caller has written
		node.Value = done.node
	}
	shown, err := s.show(r.Context(), r.nodeKey(), node.Value, true)
	if err != nil {
		return err
	}
	if done.credential != "" && node.Value.Credential == done.credential {
		if url, err := s.liveURL(r.Context(), done.credential); err == nil && url != nil {
			shown.Properties.ConfigURL, shown.Properties.ConfigURLExpires = url.ConfigURL, &url.ConfigURLExpires
		}
	}
	status := http.StatusOK
	if done.created {
		status = http.StatusCreated
	}
	w.Header().Set("ETag", shown.ETag)
	arm.WriteJSON(w, status, shown)
	return nil
}

// regenerateToken makes a new credential in place of the present one. The desired configuration stays, and its version with it.
func (s *Server) regenerateToken(w http.ResponseWriter, r *request) error {
	var nothing struct{}
	if err := decode(r.body, &nothing); err != nil {
		return err
	}
	ctx := r.Context()
	for range tries {
		credential, err := s.tryRegenerate(ctx, r)
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, patience)
		err = s.advance(wait, credential)
		cancel()
		if err != nil {
			return fmt.Errorf("cannot make the credential ready: %w", err)
		}
		return s.answerURL(w, r, credential)
	}
	return busy()
}

func (s *Server) tryRegenerate(ctx context.Context, r *request) (string, error) {
	cluster, err := s.parent(ctx, r)
	if err != nil {
		return "", err
	}
	node, err := s.Store.Nodes.Get(ctx, r.nodeKey())
	if err != nil {
		return "", err
	}
	if !node.Exists() || node.Value.State == api.Deleting {
		return "", s.notFound(ctx, r)
	}
	if err := r.preconditions(node.Value.ETag()); err != nil {
		return "", err
	}
	txn := s.Store.Txn()
	if err := s.revokeOutstanding(ctx, txn, node.Value.Credential); err != nil {
		return "", err
	}
	next := node.Value
	if next.Credential, err = s.plan(txn, node.Key, cluster, next); err != nil {
		return "", err
	}
	if next.State != api.Creating {
		next.State = api.Updating
	}
	s.Store.Nodes.Put(txn, node, next)
	if _, err := s.commit(ctx, "credential planned", txn); err != nil {
		return "", err
	}
	r.before, r.after = node.Value.Version, next.Version
	s.revokeNow(ctx, node.Value.Credential)
	return next.Credential, nil
}

// listConfigURL tells the URL that is in force.
func (s *Server) listConfigURL(w http.ResponseWriter, r *request) error {
	var nothing struct{}
	if err := decode(r.body, &nothing); err != nil {
		return err
	}
	node, err := s.Store.Nodes.Get(r.Context(), r.nodeKey())
	if err != nil {
		return err
	}
	if !node.Exists() || node.Value.State == api.Deleting {
		if _, err := s.parent(r.Context(), r); err != nil {
			return err
		}
		return s.notFound(r.Context(), r)
	}
	return s.answerURL(w, r, node.Value.Credential)
}

func (s *Server) answerURL(w http.ResponseWriter, r *request, credential string) error {
	url, err := s.liveURL(r.Context(), credential)
	if err != nil {
		return err
	}
	if url == nil {
		return arm.Errorf(409, "NoConfigUrl", "There is no configuration URL in force: none was asked for, or it was used, replaced or has expired, or the cluster could not be reached yet. POST regenerateToken makes one.")
	}
	node, err := s.Store.Nodes.Get(r.Context(), r.nodeKey())
	if err != nil {
		return err
	}
	url.ConfigVersion = node.Value.Version
	arm.WriteJSON(w, http.StatusOK, url)
	return nil
}
