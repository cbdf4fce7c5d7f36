package cluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// followCredentials queues each credential of the cluster when it changes and when it is due.
func (w *worker) followCredentials(ctx context.Context) {
	w.outstanding.Clear()
	w.Store.Credentials.Sync(ctx, w.key+"/", w.seeCredential, nil, func(err error) {
		w.log.Warn("cannot follow the credentials", slog.Any("error", err))
	})
}

func (w *worker) seeCredential(r store.Row[store.Credential]) {
	if !r.Exists() {
		w.outstanding.Delete(r.Key)
		return
	}
	c := r.Value
	w.outstanding.Store(r.Key, c.State)
	node, err := w.Index.Node(c.Node)
	wanted := err == nil && node.Exists() && node.Value.Credential == r.Key
	// A Live credential waits, all others need a step now. The step reads again whether the
	// credential is wanted.
	pause := time.Duration(0)
	if state, next := credential.Due(c, wanted, time.Now()); state == store.Live {
		pause = time.Until(next)
	}
	w.tasks.AddAfter(task{taskCredential, r.Key}, pause)
}

// TokenGroup is the group of the holders of the provider's tokens: they may request a certificate
// and nothing else.
const TokenGroup = "system:bootstrappers:flexnode"

// The user of a bootstrap token is tokenUser and its id; its Secret is tokenSecret and its id.
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
const tokenUser, tokenSecret = "system:bootstrap:", "bootstrap-token-"

// tokenGroup returns the group of a registration's tokens alone: another installation, or another
// registration of the same API server, has another. Its length is fixed, so that the admission
// policy can check that a Secret has no third group (rbac-provider.yaml).
func tokenGroup(installation, cluster string) string {
	return fmt.Sprintf("%s:%.8x", TokenGroup, sha256.Sum256([]byte(installation+"\n"+cluster)))
}

// The labels of the provider's Secrets: the program, its installation, the registration of the
// cluster and the credential that the Secret belongs to. Secrets of other installations and
// registrations are never touched.
const (
	providerLabel     = "flexnode.azure.com/provider"
	installationLabel = flexnode.InstallationLabel
	clusterLabel      = "flexnode.azure.com/cluster"
	credentialLabel   = "flexnode.azure.com/credential"

	providerName = "flexnode-rp"
)

func (w *worker) marks() labels.Set {
	return labels.Set{providerLabel: providerName, installationLabel: w.Installation,
		clusterLabel: fmt.Sprintf("%.16x", sha256.Sum256([]byte(w.key)))}
}

// tokens creates and removes bootstrap tokens in the cluster (credential.Tokens).
type tokens struct{ w *worker }

// Create creates the Secret of a bootstrap token (Kubernetes, "Authenticating with Bootstrap
// Tokens"). token is its id and secret. The provider may not read Secrets: an existing one of the
// name counts as that of an earlier attempt, with the same content, if the admission policy lets
// the provider delete it. Otherwise it belongs to another owner: Create fails with
// credential.ErrTaken.
func (t tokens) Create(
	ctx context.Context, c store.Credential, key, token string,
) (told string, err error) {
	s, err := t.w.use()
	if err != nil {
		return unreachable(err), err
	}
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	secrets := s.Client.CoreV1().Secrets(metav1.NamespaceSystem)
	_, err = secrets.Create(ctx, t.w.secret(c, key, token), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = secrets.Delete(ctx, secretName(c), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if refusedByPolicy(err) {
			return "", credential.ErrTaken
		}
	}
	if err != nil {
		err = fmt.Errorf("cannot create a bootstrap token: %w", err)
		return unreachable(err), err
	}
	return "", nil
}

func secretName(c store.Credential) string { return tokenSecret + c.TokenID }

// refusedByPolicy reports whether a ValidatingAdmissionPolicy refused a request, rather than RBAC.
func refusedByPolicy(err error) bool { return apierrors.IsInvalid(err) }

func (w *worker) secret(c store.Credential, key, token string) *corev1.Secret {
	_, secret, _ := strings.Cut(token, ".")
	group := tokenGroup(w.Installation, w.key)
	marks := w.marks()
	marks[credentialLabel] = flexnode.LastOf(key)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: secretName(c), Namespace: metav1.NamespaceSystem, Labels: marks,
		},
		Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id":                       []byte(c.TokenID),
			"token-secret":                   []byte(secret),
			"expiration":                     []byte(c.Expires.UTC().Format(time.RFC3339)),
			"usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups":              []byte(TokenGroup + "," + group),
			"description":                    []byte("flexNodeConfig " + c.Node),
		},
	}
}

// Remove deletes the Secret of a credential, even if its creation got no answer. The admission
// policy protects a Secret of the same name of another owner.
func (t tokens) Remove(ctx context.Context, c store.Credential) error {
	s, err := t.w.use()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	secrets := s.Client.CoreV1().Secrets(metav1.NamespaceSystem)
	err = secrets.Delete(ctx, secretName(c), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !refusedByPolicy(err) {
		return fmt.Errorf("cannot delete a bootstrap token: %w", err)
	}
	return nil
}
