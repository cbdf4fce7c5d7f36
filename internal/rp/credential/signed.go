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
	path    string
	expires time.Time
}

// signedVersion is the version of the storage service that defines this string-to-sign.
const signedVersion = "2020-12-06"

const signedTime = "2006-01-02T15:04:05Z"

// text returns the text to sign: the 16 fields of a service SAS, with unused ones empty.
func (u signed) text() string {
	return strings.Join([]string{
		"r", "", u.expires.UTC().Format(signedTime), "/blob" + u.path, "", "", "https",
		signedVersion, "b", "", "", "", "", "", "", "",
	}, "\n")
}

// urlSigning is the purpose for which keys for URLs are derived.
const urlSigning = "configuration URLs"

// values returns the parameters, signed with a key.
func (u signed) values(key []byte) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(u.text()))
	return url.Values{
		"sv": {signedVersion}, "se": {u.expires.UTC().Format(signedTime)},
		"sr": {"b"}, "sp": {"r"}, "spr": {"https"},
		"sig": {base64.StdEncoding.EncodeToString(h.Sum(nil))},
	}.Encode()
}

// query signs with the first key of the ring.
func (u signed) query(keys seal.Ring) (string, error) {
	derived, err := keys.Derive(urlSigning)
	if err == nil && len(derived) == 0 {
		err = errors.New("internal error: no key to sign URLs with")
	}
	if err != nil {
		return "", err
	}
	return u.values(derived[0]), nil
}

// genuine returns the expiry of a URL if a key of the ring has signed it and its parameters are
// unchanged. It takes the same time for any other flaw.
func genuine(from *url.URL, keys seal.Ring) (expires time.Time, is bool) {
	query, err := url.ParseQuery(from.RawQuery)
	if err != nil {
		return expires, false
	}
	if expires, err = time.Parse(signedTime, query.Get("se")); err != nil {
		return expires, false
	}
	derived, err := keys.Derive(urlSigning)
	for _, key := range derived {
		made := signed{from.Path, expires}.values(key)
		is = hmac.Equal([]byte(made), []byte(query.Encode())) || is
	}
	return expires, is && err == nil
}
