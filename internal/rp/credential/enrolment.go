package credential

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// enrolling is the purpose for which keys for enrolment secrets are derived.
const enrolling = "enrolment secrets"

// enrolmentOf returns the id of the enrolment secret of a credential, by its key.
func enrolmentOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// enrolmentSecret returns the secret with which a machine registers its key as the node with a uid.
// It is not stored: it is derived from its id and a key of the ring.
func (s *Service) enrolmentSecret(uid, id string) (string, error) {
	keys, err := s.Keys.Derive(enrolling)
	if err != nil {
		return "", err
	}
	if len(keys) == 0 {
		return "", errors.New("internal error: no key to make enrolment secrets with")
	}
	return id + "." + base64.RawURLEncoding.EncodeToString(enrolmentMAC(keys[0], uid, id)), nil
}

func enrolmentMAC(key []byte, uid, id string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(uid + "/" + id))
	return h.Sum(nil)
}

// Enrolment returns the id of an enrolment secret of the node with a uid, and whether it was made
// for that node. flexnode.Node.Register decides whether it still registers a key.
func (s *Service) Enrolment(uid, secret string) (id string, genuine bool, err error) {
	id, text, _ := strings.Cut(secret, ".")
	mac, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || id == "" {
		return "", false, nil
	}
	keys, err := s.Keys.Derive(enrolling)
	for _, key := range keys {
		genuine = hmac.Equal(enrolmentMAC(key, uid, id), mac) || genuine
	}
	return id, genuine, err
}

// disenrol invalidates the enrolment secret of a credential.
func disenrol(n *flexnode.Node, key string) {
	if n.Enrolment == enrolmentOf(key) {
		n.Enrolment = ""
	}
}
