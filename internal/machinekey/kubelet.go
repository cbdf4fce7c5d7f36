package machinekey

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
)

// Statement returns the bytes that a kubelet signs: the key with a thumbprint is of the node with a
// uid.
func Statement(uid, thumbprint string) []byte {
	return []byte("aks-flex-node machine key\n" + uid + "\n" + thumbprint)
}

// SignAsKubelet signs a statement with the pair of a kubelet's client certificate and its key, in PEM.
// It returns the certificate in DER.
func SignAsKubelet(pair, statement []byte) (certificate, signature []byte, err error) {
	kubelet, err := tls.X509KeyPair(pair, pair)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot use kubelet's certificate: %w", err)
	}
	key, ok := kubelet.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, errors.New("cannot sign with kubelet's key")
	}
	sum := sha256.Sum256(statement)
	signature, err = key.Sign(rand.Reader, sum[:], crypto.SHA256)
	return kubelet.Certificate[0], signature, err
}
