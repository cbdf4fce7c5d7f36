package credential

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

// signed is a URL in the form of a service SAS for one blob, read only: sv, se, sr=b, sp=r, sig
// (Azure Storage, "Create a service SAS").
type signed struct {
	path      string
	expires   time.Time
	signature []byte
}

// signedVersion is the version of the storage service whose string-to-sign this is.
const signedVersion = "2020-12-06"

const signedTime = "2006-01-02T15:04:05Z"

// text returns the text to sign: the 16 fields of a service SAS, those that are not used empty.
func (u signed) text() string {
	return strings.Join([]string{
		"r", "", u.expires.UTC().Format(signedTime), "/blob" + u.path, "", "", "https",
		signedVersion, "b", "", "", "", "", "", "", "",
	}, "\n")
}

func (u signed) mac(key []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(u.text()))
	return h.Sum(nil)
}

// urlSigning is the purpose that the keys for URLs are derived for.
const urlSigning = "configuration URLs"

// query signs with the first key of the ring.
func (u signed) query(keys seal.Ring) (string, error) {
	derived, err := keys.Derive(urlSigning)
	if err != nil {
		return "", err
	}
	if len(derived) == 0 {
		return "", errors.New("internal error: no key to sign URLs with")
	}
	q := url.Values{
		"sv": {signedVersion}, "se": {u.expires.UTC().Format(signedTime)},
		"sr": {"b"}, "sp": {"r"}, "spr": {"https"},
		"sig": {base64.StdEncoding.EncodeToString(u.mac(derived[0]))},
	}
	return q.Encode(), nil
}

// parseSigned reads a URL. Each parameter is given once, and there are no others.
func parseSigned(from *url.URL) (signed, error) {
	u := signed{path: from.Path}
	query, err := url.ParseQuery(from.RawQuery)
	if err != nil {
		return u, err
	}
	fixed := map[string]string{"sv": signedVersion, "sr": "b", "sp": "r", "spr": "https"}
	for name, values := range query {
		if len(values) != 1 {
			return u, errors.New("a parameter is given twice")
		}
		want, known := fixed[name]
		if known && values[0] != want || !known && name != "se" && name != "sig" {
			return u, errors.New("a parameter is not as it was made")
		}
		delete(fixed, name)
	}
	if len(fixed) > 0 {
		return u, errors.New("a parameter is missing")
	}
	if u.expires, err = time.Parse(signedTime, query.Get("se")); err != nil {
		return u, err
	}
	u.signature, err = base64.StdEncoding.Strict().DecodeString(query.Get("sig"))
	return u, err
}

// genuine reports whether a key of the ring has signed this. It takes the same time whatever is
// wrong.
func (u signed) genuine(keys seal.Ring) bool {
	derived, err := keys.Derive(urlSigning)
	if err != nil {
		return false
	}
	genuine := false
	for _, key := range derived {
		genuine = hmac.Equal(u.mac(key), u.signature) || genuine
	}
	return genuine
}
