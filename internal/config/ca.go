package config

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

const aCA = "base64 of one or more PEM certificates of certificate authorities"

// checkCA reads node.kubelet.caCertData. Expiry is not checked: it depends on the clock and shows
// when the certificate is used. The value is left out of problems, since it is long and may be a
// private key by mistake.
func checkCA(c Config, r *report) {
	const at = "node.kubelet.caCertData"
	if c.Node.Kubelet.CACertData == "" || r.spoiled(at) {
		return
	}
	if err := parseCA(c.Node.Kubelet.CACertData); err != nil {
		r.add(at, "", fmt.Sprintf("must be %s: %v", aCA, err))
	}
}

func parseCA(data string) error {
	if strings.HasPrefix(strings.TrimSpace(data), "-----BEGIN") {
		return errors.New("this is PEM itself: encode it (base64 -w0)")
	}
	rest, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return errors.New("it is not base64")
	}
	for n := 0; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if n == 0 {
				return errors.New("it holds no PEM certificate")
			}
			return nil
		}
		if block.Type != "CERTIFICATE" {
			return errors.New("it holds something else than certificates: leave only them")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("certificate %d does not parse", n+1)
		}
		if !cert.BasicConstraintsValid || !cert.IsCA {
			return fmt.Errorf("certificate %d (%s) is not that of a certificate authority",
				n+1, show(cert.Subject.CommonName))
		}
	}
}
