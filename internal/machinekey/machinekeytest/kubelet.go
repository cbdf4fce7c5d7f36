// Package machinekeytest issues kubelet certificates for tests.
package machinekeytest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"
)

// CA signs kubelet certificates.
type CA struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// NewCA returns a new CA.
func NewCA() CA {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return CA{must(x509.ParseCertificate(der)), key}
}

// PEM returns the certificate of the CA.
func (c CA) PEM() []byte { return encode("CERTIFICATE", c.certificate.Raw) }

// Kubelet issues a client certificate for a node's kubelet, and returns it with its key in the
// format of kubelet's file.
func (c CA) Kubelet(node string, withRSA bool) (pair []byte, leaf *x509.Certificate) {
	var key crypto.Signer = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	if withRSA {
		key = must(rsa.GenerateKey(rand.Reader, 2048))
	}
	template := &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62))),
		Subject: pkix.Name{
			CommonName: "system:node:" + node, Organization: []string{"system:nodes"},
		},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der := must(x509.CreateCertificate(rand.Reader, template, c.certificate, key.Public(), c.key))
	private := must(x509.MarshalPKCS8PrivateKey(key))
	pair = append(encode("CERTIFICATE", der), encode("PRIVATE KEY", private)...)
	return pair, must(x509.ParseCertificate(der))
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
