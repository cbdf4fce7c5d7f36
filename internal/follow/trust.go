package follow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/signing"
)

// UntrustedError reports that an installation has not signed, for this machine, what its provider
// answers, or that the provider goes back.
type UntrustedError struct{ Err error }

func (e *UntrustedError) Error() string {
	return "cannot trust the answer of the provider: " + e.Err.Error()
}
func (e *UntrustedError) Unwrap() error { return e.Err }

// Proof is a signature that was verified.
type Proof struct {
	// Signed is when it was made, Until is until when the key is certified that has made it: a node
	// goes on with one that has expired.
	Signed, Until time.Time
}

// Verify verifies a bundle's signature by the root certificate that this machine trusts, in DER.
// The error is an *UntrustedError, unless the bundle cannot be read.
func Verify(bundle, root []byte) (proof Proof, from config.Resource, err error) {
	content, from, err := config.Covered(bundle)
	var b struct{ Signature *agentapi.Signature }
	if err == nil {
		err = json.Unmarshal(bundle, &b)
	}
	if err != nil {
		return proof, from, err
	}
	proof, err = verify(root, b.Signature, signing.Statement{
		Kind: signing.Revision, UID: from.UID, Version: from.ConfigVersion, Epoch: from.Epoch,
		Content: content,
	})
	return proof, from, err
}

func verify(root []byte, by *agentapi.Signature, said signing.Statement) (proof Proof, err error) {
	switch {
	case by == nil:
		err = errors.New("it is not signed")
	case len(root) == 0:
		err = errors.New("this machine knows no root key of the installation; a new configuration URL " +
			"(regenerateToken) brings it")
	default:
		said.Time, proof.Signed = by.Time, by.Time
		proof.Until, err = signing.Verify(root, by.Certificate, by.Signature, said)
	}
	if err != nil {
		return proof, &UntrustedError{fmt.Errorf("the %s %s: %w", said.Kind, shorten(said.Version), err)}
	}
	return proof, nil
}
