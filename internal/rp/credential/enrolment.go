package credential

import (
	"crypto/hmac"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// enrolling is the purpose that the keys for enrolment secrets are derived for.
const enrolling = "enrolment secrets"

// enrolmentOf returns the id of the enrolment secret of a credential, by its key.
func enrolmentOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// enrolmentSecret returns the secret by which a machine registers its key as the node with a uid.
// It is stored nowhere: it is made of its id and a key of the ring.
func (s *Service) enrolmentSecret(uid, id string) (string, error) {
	macs, err := s.Keys.MACs(enrolling, uid+"/"+id)
	if err != nil {
		return "", err
	}
	return id + "." + base64.RawURLEncoding.EncodeToString(macs[0]), nil
}

// Enrolment returns the id of an enrolment secret of the node with a uid. One that was never made
// for it is not genuine; whether one still registers a key is for flexnode.Node.Register to say.
func (s *Service) Enrolment(uid, secret string) (id string, genuine bool, err error) {
	id, text, _ := strings.Cut(secret, ".")
	mac, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || id == "" {
		return "", false, nil
	}
	macs, err := s.Keys.MACs(enrolling, uid+"/"+id)
	return id, slices.ContainsFunc(macs, func(made []byte) bool { return hmac.Equal(made, mac) }), err
}

// disenrol has the enrolment secret of a credential register no machine any more.
func disenrol(n *flexnode.Node, key string) {
	if n.Enrolment == enrolmentOf(key) {
		n.Enrolment = ""
	}
}
