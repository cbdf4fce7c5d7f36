package credential

import (
	"crypto/hmac"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// KeepSecret stores a version of the client secret of a node within a change.
func (s *Service) KeepSecret(v *store.View, nodeKey, secret string, version int64) error {
	box := s.Keys.Seal(secretSeal+nodeKey, []byte(secret))
	return s.Store.Secrets.Set(v, nodeKey, store.Sealed{Box: box, Version: version})
}

// SecretIn reads the client secret of a node within a view, with its version; 0 is none. If it
// cannot be opened, the version is returned with the error.
func (s *Service) SecretIn(v *store.View, nodeKey string) (string, int64, error) {
	row := s.Store.Secrets.Row(v, nodeKey)
	if !row.Exists() {
		return "", 0, nil
	}
	text, err := s.Keys.Open(secretSeal+row.Key, row.Value.Box)
	if err != nil {
		return "", row.Value.Version, fmt.Errorf("cannot read the client secret of %s: %w", row.Key, err)
	}
	return string(text), row.Value.Version, nil
}

// Compare compares the client secret of a node with the one that its owner gives; "" if he gives
// none. A stored one that cannot be opened counts as missing if another is given, so that a lost
// key can be overcome.
func (s *Service) Compare(v *store.View, nodeKey, given string) flexnode.Secret {
	text, version, err := s.SecretIn(v, nodeKey)
	if err != nil && version != 0 && given != "" {
		return flexnode.Secret{Version: version}
	}
	v.Fail(err)
	return flexnode.Secret{Version: version, Known: version != 0, Same: version != 0 && given == text}
}

// SecretAge limits the time for which the secret that enrolled an Arc machine is kept after the
// deletion of its node.
const SecretAge = 30 * 24 * time.Hour

// ArcLeftKey returns the key of the Arc machine that a deleted node has left.
func ArcLeftKey(nodeKey, uid string) string { return nodeKey + "/" + uid }

// LeaveArc records within a change that the Arc machine of a node, which is being deleted, must be
// removed. withSecret keeps the secret that enrolled it, if it can be read, for the machine, unless
// that is shut out.
func (s *Service) LeaveArc(
	v *store.View, nodeKey string, n flexnode.Node, withSecret, shutOut bool, at time.Time,
) error {
	if n.Desired.AzureAuth.Method != api.Arc || !n.Desired.KubernetesAuth.UseAzureAuth {
		return nil
	}
	key := ArcLeftKey(nodeKey, n.UID)
	left := store.ArcLeft{
		Machine: flexnode.MachineOf(n.ID, n.Desired), Deleted: at.UTC().Truncate(time.Second),
		ShutOut: shutOut,
	}
	secret, _, err := s.SecretIn(v, nodeKey)
	if err != nil {
		s.Audit.Warn("an Arc machine cannot leave with the secret that has enrolled it",
			"node", nodeKey, "error", err)
	}
	if withSecret && !shutOut && secret != "" {
		left.Secret = new(s.Keys.Seal(arcLeftSeal+key, []byte(secret)))
	}
	return s.Store.ArcLeft.Put(v, key, left)
}

// ArcSecret opens the secret with which a machine leaves Azure Arc; "" for none.
func (s *Service) ArcSecret(row store.Row[store.ArcLeft]) (string, error) {
	if row.Value.Secret == nil {
		return "", nil
	}
	text, err := s.Keys.Open(arcLeftSeal+row.Key, *row.Value.Secret)
	if err != nil {
		return "", fmt.Errorf("cannot read the onboarding secret of %s: %w", row.Key, err)
	}
	return string(text), nil
}

// enrolling is the purpose for which keys for enrolment secrets are derived.
const enrolling = "enrolment secrets"

// enrolmentSecret returns the secret with which a machine registers its key as the node with a uid.
// It is not stored: it is derived from its id, the last part of the credential's key, and a key of
// the ring.
func (s *Service) enrolmentSecret(uid, id string) string {
	return id + "." + base64.RawURLEncoding.EncodeToString(s.Keys.MACs(enrolling, uid+"/"+id)[0])
}

// Enrolment returns the id of an enrolment secret that was made for the node with a uid; "" for any
// other. flexnode.Node.Register decides whether it still registers a key.
func (s *Service) Enrolment(uid, secret string) string {
	id, text, _ := strings.Cut(secret, ".")
	mac, err := base64.RawURLEncoding.Strict().DecodeString(text)
	is := func(made []byte) bool { return hmac.Equal(made, mac) }
	if err != nil || !slices.ContainsFunc(s.Keys.MACs(enrolling, uid+"/"+id), is) {
		return ""
	}
	return id
}

// disenrol invalidates the enrolment secret of a credential.
func disenrol(n *flexnode.Node, key string) {
	if n.Enrolment == flexnode.LastOf(key) {
		n.Enrolment = ""
	}
}
