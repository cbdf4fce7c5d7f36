package machinekey

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// Statement returns the text that a kubelet signs: the key with a thumbprint is of the machine that is
// the node with a uid.
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

// SignedByKubelet returns the certificate with whose key a statement is signed. Whose certificate it
// is the caller decides.
func SignedByKubelet(certificate, signature, statement []byte) (*x509.Certificate, error) {
	leaf, err := x509.ParseCertificate(certificate)
	if err != nil {
		return nil, fmt.Errorf("cannot read kubelet's certificate: %w", err)
	}
	how, ok := map[x509.PublicKeyAlgorithm]x509.SignatureAlgorithm{
		x509.ECDSA: x509.ECDSAWithSHA256, x509.RSA: x509.SHA256WithRSA,
	}[leaf.PublicKeyAlgorithm]
	if !ok {
		return nil, errors.New("kubelet's key is of another kind")
	}
	return leaf, leaf.CheckSignature(how, statement, signature)
}
