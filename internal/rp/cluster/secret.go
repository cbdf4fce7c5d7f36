package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	bootstrap "k8s.io/cluster-bootstrap/token/api"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// TokenGroup is what holders of our tokens belong to: they may ask for a certificate and nothing
// else.
const TokenGroup = "system:bootstrappers:flexnode"

// tokenGroup is the group of this registration's tokens alone: another installation, or another
// registration of the same API server, has another. Its length is fixed, so that the admission policy
// can tell that a Secret has no third group (rbac-provider.yaml).
func (w *worker) tokenGroup() string { return tokenGroup(w.Installation, w.key) }

func tokenGroup(installation, cluster string) string {
	sum := sha256.Sum256([]byte(installation + "\n" + cluster))
	return TokenGroup + ":" + hex.EncodeToString(sum[:8])
}

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

// Create makes the Secret of a bootstrap token (Kubernetes, "Authenticating with Bootstrap Tokens")
// and returns its uid. token is its id and secret. It fails with credential.ErrTaken if a Secret of
// that name exists: the provider may not read Secrets, so it cannot know whose that is.
func (t tokens) Create(
	ctx context.Context, c store.Credential, key, token string,
) (uid string, err error) {
	uid, err = t.create(ctx, c, key, token)
	if err != nil && !errors.Is(err, credential.ErrTaken) {
		err = &credential.TokenError{Told: unreachable(err), Err: err}
	}
	return uid, err
}

func (t tokens) create(
	ctx context.Context, c store.Credential, key, token string,
) (uid string, err error) {
	s, err := t.w.use()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	made, err := s.connection.Secrets.CoreV1().Secrets(metav1.NamespaceSystem).
		Create(ctx, t.w.secret(c, key, token), metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return "", credential.ErrTaken
	case err != nil:
		return "", fmt.Errorf("cannot create a bootstrap token: %w", err)
	}
	return string(made.UID), nil
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
			bootstrap.BootstrapTokenExtraGroupsKey:                 []byte(TokenGroup + "," + w.tokenGroup()),
			bootstrap.BootstrapTokenDescriptionKey: []byte("flexNodeConfig " +
				c.Node),
		},
	}
}

// Remove deletes the Secret that was created for a credential. A Secret whose creation was not
// recorded is left to expire: no machine has its token, and no request that comes with it is approved.
func (t tokens) Remove(ctx context.Context, c store.Credential) error {
	if c.TokenUID == "" {
		return nil
	}
	s, err := t.w.use()
	if err != nil {
		return err
	}
	if !t.w.owner.Valid() {
		return errNotOwner
	}
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	uid := types.UID(c.TokenUID)
	err = s.connection.Secrets.CoreV1().Secrets(metav1.NamespaceSystem).
		Delete(ctx, bootstrap.BootstrapTokenSecretPrefix+c.TokenID,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot delete a bootstrap token: %w", err)
	}
	return nil
}
