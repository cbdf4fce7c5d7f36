package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	bootstrap "k8s.io/cluster-bootstrap/token/api"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// TokenGroup is what holders of our tokens belong to: they may ask for a certificate and nothing
// else.
const TokenGroup = "system:bootstrappers:flexnode"

// The labels of a Secret of ours: the program, the installation of it, the registration of the
// cluster and the credential that it belongs to. Secrets of other installations and registrations
// are never touched.
const (
	providerLabel     = "flexnode.azure.com/provider"
	installationLabel = flexnode.InstallationLabel
	clusterLabel      = "flexnode.azure.com/cluster"
	credentialLabel   = "flexnode.azure.com/credential"

	providerName = "flexnode-rp"
)

// marks are the labels of the Secrets of a registration.
func (w *worker) marks() labels.Set {
	sum := sha256.Sum256([]byte(w.key))
	return labels.Set{providerLabel: providerName, installationLabel: w.Installation,
		clusterLabel: hex.EncodeToString(sum[:16])}
}

// tokens makes and removes bootstrap tokens in the cluster (credential.Tokens).
type tokens struct{ w *worker }

// Ensure makes the Secret of a bootstrap token, if it is not there (Kubernetes, "Authenticating
// with Bootstrap Tokens"). token is its id and secret. taken tells that a token of somebody else
// has this id.
func (t tokens) Ensure(
	ctx context.Context, c store.Credential, key, token string,
) (taken bool, err error) {
	taken, err = t.ensure(ctx, c, key, token)
	if err != nil {
		err = &credential.TokenError{Told: unreachable(err), Err: err}
	}
	return taken, err
}

func (t tokens) ensure(
	ctx context.Context, c store.Credential, key, token string,
) (taken bool, err error) {
	s, err := t.w.use()
	if err != nil {
		return false, err
	}
	secrets := s.connection.Secrets.CoreV1().Secrets(metav1.NamespaceSystem)
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	_, err = secrets.Create(ctx, t.w.secret(c, key, token), metav1.CreateOptions{})
	if err == nil {
		return false, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("cannot make a bootstrap token: %w", err)
	}
	there, err := secrets.Get(ctx, bootstrap.BootstrapTokenSecretPrefix+c.TokenID,
		metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("cannot read a bootstrap token: %w", err)
	}
	return !t.w.owns(there, key), nil
}

// secret is the Secret of a token.
func (w *worker) secret(c store.Credential, key, token string) *corev1.Secret {
	_, secret, split := strings.Cut(token, ".")
	if !split {
		secret = token
	}
	expires := c.Expires.UTC().Format(time.RFC3339)
	marks := w.marks()
	marks[credentialLabel] = flexnode.LastOf(key)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:      bootstrap.BootstrapTokenSecretPrefix + c.TokenID,
			Namespace: metav1.NamespaceSystem, Labels: marks,
		},
		Type: bootstrap.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			bootstrap.BootstrapTokenIDKey:                          []byte(c.TokenID),
			bootstrap.BootstrapTokenSecretKey:                      []byte(secret),
			bootstrap.BootstrapTokenExpirationKey:                  []byte(expires),
			bootstrap.BootstrapTokenUsagePrefix + "authentication": []byte("true"),
			bootstrap.BootstrapTokenExtraGroupsKey:                 []byte(TokenGroup),
			bootstrap.BootstrapTokenDescriptionKey: []byte("flexNodeConfig " +
				c.Node),
		},
	}
}

// owns reports whether a Secret is that of a credential. Those of the release before have no label
// of the installation.
func (w *worker) owns(s *corev1.Secret, key string) bool {
	by, marked := s.Labels[installationLabel]
	return s.Labels[credentialLabel] == flexnode.LastOf(key) && (!marked || by == w.Installation)
}

// Remove deletes the Secret of a credential, unless it is somebody else's.
func (t tokens) Remove(ctx context.Context, c store.Credential, key string) error {
	if c.TokenID == "" {
		return nil
	}
	s, err := t.w.use()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name := bootstrap.BootstrapTokenSecretPrefix + c.TokenID
	there, err := s.connection.Secrets.CoreV1().Secrets(metav1.NamespaceSystem).
		Get(ctx, name, metav1.GetOptions{})
	if err == nil && !t.w.owns(there, key) {
		return nil
	}
	if err == nil {
		err = t.w.deleteSecret(ctx, s.connection.Secrets, there)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete a bootstrap token: %w", err)
	}
	return nil
}

// deleteSecret deletes a Secret, if it is still the one that was read.
func (w *worker) deleteSecret(
	ctx context.Context, client kubernetes.Interface, s *corev1.Secret,
) error {
	if !w.owner.Valid() {
		return errNotOwner
	}
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	err := client.CoreV1().Secrets(s.Namespace).Delete(ctx, s.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// orphanAge is how old a Secret without a credential is before it is deleted, secretsPage how many
// are read at once.
const (
	orphanAge   = time.Minute
	secretsPage = 500
)

// removeOrphans deletes Secrets of this registration that no credential stands behind: a restored
// backup, or a pause of the replica at the wrong moment, leaves them.
func (w *worker) removeOrphans(ctx context.Context) (time.Time, error) {
	s, err := w.use()
	if err != nil {
		return noTime, err
	}
	client := s.connection.Secrets
	options := metav1.ListOptions{LabelSelector: w.marks().String(), Limit: secretsPage}
	for {
		page, err := w.listSecrets(ctx, client, options)
		if err != nil {
			return noTime, fmt.Errorf("cannot list the bootstrap tokens: %w", err)
		}
		for i := range page.Items {
			if err := w.removeOrphan(ctx, client, &page.Items[i]); err != nil {
				return noTime, err
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return w.Now().Add(orphanInterval), nil
		}
	}
}

func (w *worker) listSecrets(
	ctx context.Context, client kubernetes.Interface, o metav1.ListOptions,
) (*corev1.SecretList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, o)
}

// removeOrphan deletes a Secret of this registration if no credential stands behind it.
func (w *worker) removeOrphan(
	ctx context.Context, client kubernetes.Interface, s *corev1.Secret,
) error {
	key := w.key + "/" + s.Labels[credentialLabel]
	id := strings.TrimPrefix(s.Name, bootstrap.BootstrapTokenSecretPrefix)
	if w.outstanding.has(key, id) || w.Now().Sub(s.CreationTimestamp.Time) < orphanAge {
		return nil
	}
	if stands, err := w.Credentials.Stands(ctx, key, id); err != nil || stands {
		return err
	}
	w.Audit.Warn("bootstrap token without a credential deleted", "cluster", w.key, "secret", s.Name)
	if err := w.deleteSecret(ctx, client, s); err != nil {
		return fmt.Errorf("cannot delete a bootstrap token: %w", err)
	}
	w.did("orphan gone")
	return nil
}
