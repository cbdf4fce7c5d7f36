package rp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	bootstrap "k8s.io/cluster-bootstrap/token/api"
	tokens "k8s.io/cluster-bootstrap/token/util"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

const (
	// lifetime is how long a credential is good for (document 004).
	lifetime = 24 * time.Hour
	// grace is how long a token stays after its certificate is there: kubelet still watches its request with it.
	grace = 30 * time.Second
	// joining is how long a machine may take from its request to its certificate.
	joining = 10 * time.Minute

	// TokenGroup is what holders of our tokens belong to: they may ask for a certificate and nothing else.
	TokenGroup = "system:bootstrappers:flexnode"
	// ownerLabel on a Secret names the credential that it belongs to.
	ownerLabel = "flexnode.azure.com/credential"
	// providerLabel marks every Secret of ours.
	providerLabel = "flexnode.azure.com/provider"
)

// The states of a credential and what moves it, from the row being written to the row being gone:
//
//	Pending --the Secret and the bundle are there--> Live --first valid CSR--> Consumed --issued + grace--> Revoking --Secret gone--> (no row)
//	   |                                               |                          |                            ^
//	   +-------- replaced, deleted, expired -----------+------ deleted, too late -+----------------------------+
//
// due is the state that a credential should be in at a time; wanted tells whether its node still refers to it.
func due(c store.Credential, wanted bool, now time.Time) string {
	switch c.State {
	case store.Pending, store.Live:
		if !wanted || !now.Before(c.Expires) {
			return store.Revoking
		}
	case store.Consumed: // its node may refer to another by now; the machine that is joining finishes
		if c.Issued != nil && !now.Before(c.Issued.Add(grace)) || !now.Before(c.Since.Add(joining)) || !now.Before(c.Expires) {
			return store.Revoking
		}
	}
	return c.State
}

// plan adds a credential to a transaction: that it shall be. Nothing has been done for it yet.
func (s *Server) plan(txn *store.Txn, nodeKey string, cluster store.Row[store.Cluster], n store.Node) (string, error) {
	id := uuid.NewString()
	key := cluster.Key + "/" + id
	now := s.Now().UTC().Truncate(time.Second) // as precise as its URL says
	c := store.Credential{Node: nodeKey, Cluster: cluster.Key, State: store.Pending, Created: now, Since: now, Expires: now.Add(lifetime)}
	if !n.Desired.KubernetesAuth.UseAzureAuth {
		token, err := tokens.GenerateBootstrapToken()
		if err != nil {
			return "", fmt.Errorf("cannot make a bootstrap token: %w", err)
		}
		box, err := s.Keys.Seal("credentials/"+key, []byte(token[7:]))
		if err != nil {
			return "", err
		}
		c.TokenID, c.Secret = token[:6], &box
		s.Store.Tokens.Put(txn, store.Row[string]{Key: cluster.Key + "/" + c.TokenID}, key) // a token id that is taken is a conflict
	}
	s.Store.Credentials.Put(txn, store.Row[store.Credential]{Key: key}, c)
	return key, nil
}

// revokeOutstanding has a transaction revoke a credential that nobody has used yet.
func (s *Server) revokeOutstanding(ctx context.Context, txn *store.Txn, key string) error {
	return s.revoke(ctx, txn, key, store.Pending, store.Live)
}

// revokeAny has a transaction revoke a credential even while a machine is joining with it.
func (s *Server) revokeAny(ctx context.Context, txn *store.Txn, key string) error {
	return s.revoke(ctx, txn, key, store.Pending, store.Live, store.Consumed)
}

func (s *Server) revoke(ctx context.Context, txn *store.Txn, key string, in ...string) error {
	if key == "" {
		return nil
	}
	row, err := s.Store.Credentials.Get(ctx, key)
	if err != nil {
		return err
	}
	for _, state := range in {
		if row.Exists() && row.Value.State == state {
			s.Store.Credentials.Put(txn, row, s.moved(row.Value, store.Revoking))
		}
	}
	return nil
}

func (s *Server) moved(c store.Credential, state string) store.Credential {
	c.State, c.Since = state, s.Now().UTC()
	return c
}

// revokeNow does at once what has been written down; what it cannot do the controller will.
func (s *Server) revokeNow(ctx context.Context, key string) {
	if key == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.advance(ctx, key); err != nil {
		s.Log.Warn("a credential is not revoked in the cluster yet; its URL is dead, and the controller goes on with it", "credential", key, "error", err)
	}
}

// advance brings a credential as far as it gets by itself. It may be called at any time, by anybody, and several times at once:
// what it does in the cluster can be done twice, and what it writes depends on what it has read.
func (s *Server) advance(ctx context.Context, key string) error {
	for range tries {
		row, err := s.Store.Credentials.Get(ctx, key)
		if err != nil || !row.Exists() {
			return err
		}
		node, err := s.Store.Nodes.Get(ctx, row.Value.Node)
		if err != nil {
			return err
		}
		wanted := node.Exists() && node.Value.Credential == key && node.Value.State != api.Deleting
		if next := due(row.Value, wanted, s.Now()); next != row.Value.State {
			txn := s.Store.Txn()
			s.Store.Credentials.Put(txn, row, s.moved(row.Value, next))
			if _, err := s.commit(ctx, "credential revoked", txn); err != nil && !errors.Is(err, store.ErrConflict) {
				return err
			}
			continue
		}
		switch row.Value.State {
		case store.Pending:
			err = s.enliven(ctx, row, node)
		case store.Revoking:
			err = s.bury(ctx, row)
		default:
			return nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return errors.New("cannot advance the credential: others change it all the time")
}

// enliven makes the Secret and the bundle of a pending credential.
func (s *Server) enliven(ctx context.Context, row store.Row[store.Credential], node store.Row[store.Node]) error {
	if node.Value.Resolved.Facts == "" {
		return errors.New("cannot make the configuration: the cluster has not been reached yet")
	}
	facts, err := s.factsOf(ctx, node.Value.Resolved.Facts)
	if err != nil {
		return err
	}
	_, secret, err := s.clientSecret(ctx, node.Key)
	if err != nil {
		return err
	}
	g := grants{ClientSecret: secret}
	if row.Value.TokenID != "" {
		text, err := s.Keys.Open("credentials/"+row.Key, *row.Value.Secret)
		if err != nil {
			return err
		}
		g.Token = row.Value.TokenID + "." + string(text)
		if err := s.ensureSecret(ctx, row, string(text)); err != nil {
			return err
		}
		s.did("Secret made")
	}
	bundle, err := json.MarshalIndent(object{"config": render(node.Value, facts, s.Defaults, g)}, "", "  ")
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	if err := s.Bundles.Put(ctx, row.Key, bundle, row.Value.Expires); err != nil {
		return err
	}
	s.did("bundle made")
	txn := s.Store.Txn()
	next := node.Value
	next.State = ""
	s.Store.Nodes.Put(txn, node, next)
	s.Store.Credentials.Put(txn, row, s.moved(row.Value, store.Live))
	_, err = s.commit(ctx, "credential live", txn)
	return err
}

// ensureSecret makes the token's Secret, if it is not there (Kubernetes, "Authenticating with Bootstrap Tokens").
func (s *Server) ensureSecret(ctx context.Context, row store.Row[store.Credential], secret string) error {
	target, err := s.target(ctx, row.Value.Cluster)
	if err != nil {
		return err
	}
	c := row.Value
	_, err = target.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: bootstrap.BootstrapTokenSecretPrefix + c.TokenID, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{providerLabel: "flexnode-rp", ownerLabel: labelOf(row.Key)},
		},
		Type: bootstrap.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			bootstrap.BootstrapTokenIDKey: []byte(c.TokenID), bootstrap.BootstrapTokenSecretKey: []byte(secret),
			bootstrap.BootstrapTokenExpirationKey:                  []byte(c.Expires.Format(time.RFC3339)),
			bootstrap.BootstrapTokenUsagePrefix + "authentication": []byte("true"),
			bootstrap.BootstrapTokenExtraGroupsKey:                 []byte(TokenGroup),
			bootstrap.BootstrapTokenDescriptionKey:                 []byte("flexNodeConfig " + c.Node),
		},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return clusterError(c.Cluster, "make a bootstrap token in", err)
	}
	there, err := target.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, bootstrap.BootstrapTokenSecretPrefix+c.TokenID, metav1.GetOptions{})
	if err != nil {
		return clusterError(c.Cluster, "look for a bootstrap token in", err)
	}
	if there.Labels[ownerLabel] == labelOf(row.Key) {
		return nil
	}
	return s.renameToken(ctx, row)
}

// renameToken gives a credential another token: somebody else's has the id that was drawn.
func (s *Server) renameToken(ctx context.Context, row store.Row[store.Credential]) error {
	token, err := tokens.GenerateBootstrapToken()
	if err != nil {
		return fmt.Errorf("cannot make a bootstrap token: %w", err)
	}
	box, err := s.Keys.Seal("credentials/"+row.Key, []byte(token[7:]))
	if err != nil {
		return err
	}
	txn := s.Store.Txn()
	s.Store.Tokens.Clear(txn, row.Value.Cluster+"/"+row.Value.TokenID)
	next := row.Value
	next.TokenID, next.Secret = token[:6], &box
	s.Store.Tokens.Put(txn, store.Row[string]{Key: next.Cluster + "/" + next.TokenID}, row.Key)
	s.Store.Credentials.Put(txn, row, next)
	if _, err := s.commit(ctx, "token renamed", txn); err != nil {
		return err
	}
	return store.ErrConflict // and again, from the row as it is now
}

// labelOf is a credential's key as the value of a label: its id.
func labelOf(key string) string { return key[len(key)-36:] }

// bury takes away what there is of a revoked credential, and then its row.
func (s *Server) bury(ctx context.Context, row store.Row[store.Credential]) error {
	if err := s.Bundles.Delete(ctx, row.Key); err != nil {
		return err
	}
	s.did("bundle gone")
	if c := row.Value; c.TokenID != "" {
		target, err := s.target(ctx, c.Cluster)
		if err != nil && !errors.Is(err, errNoCluster) {
			return err
		}
		if err == nil {
			if err := deleteSecret(ctx, target, c, labelOf(row.Key)); err != nil {
				return err
			}
		}
		s.did("Secret gone")
	}
	txn := s.Store.Txn()
	s.Store.Credentials.Delete(txn, row)
	if row.Value.TokenID != "" {
		s.Store.Tokens.Clear(txn, row.Value.Cluster+"/"+row.Value.TokenID)
	}
	_, err := s.commit(ctx, "credential gone", txn)
	return err
}

// deleteSecret deletes the Secret of a credential, unless it is somebody else's.
func deleteSecret(ctx context.Context, target kubernetes.Interface, c store.Credential, label string) error {
	name := bootstrap.BootstrapTokenSecretPrefix + c.TokenID
	there, err := target.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && there.Labels[ownerLabel] != label {
		return nil
	}
	if err == nil {
		err = target.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &there.UID}})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return clusterError(c.Cluster, "delete a bootstrap token in", err)
}

func clusterError(cluster, what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot %s cluster %s: %w", what, cluster, err)
}

// liveURL is the URL of a credential; nil unless it is live.
func (s *Server) liveURL(ctx context.Context, key string) (*api.ConfigURL, error) {
	if key == "" {
		return nil, nil
	}
	row, err := s.Store.Credentials.Get(ctx, key)
	if err != nil || !row.Exists() || row.Value.State != store.Live || !s.Now().Before(row.Value.Expires) {
		return nil, err
	}
	url, err := s.Bundles.URL(key, row.Value.Expires)
	if err != nil {
		return nil, err
	}
	return &api.ConfigURL{ConfigURL: url, ConfigURLExpires: row.Value.Expires}, nil
}
