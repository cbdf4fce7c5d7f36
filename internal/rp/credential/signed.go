package credential

import (
	"crypto/hmac"
	"encoding/base64"
	"net/url"
	"slices"
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

// urlSigning is the purpose that the keys for URLs are derived for.
const urlSigning = "configuration URLs"

// values are the parameters, with the MAC of the text.
func (u signed) values(mac []byte) string {
	return url.Values{
		"sv": {signedVersion}, "se": {u.expires.UTC().Format(signedTime)},
		"sr": {"b"}, "sp": {"r"}, "spr": {"https"},
		"sig": {base64.StdEncoding.EncodeToString(mac)},
	}.Encode()
}

// query signs with the first key of the ring.
func (u signed) query(keys seal.Ring) (string, error) {
	macs, err := keys.MACs(urlSigning, u.text())
	if err != nil {
		return "", err
	}
	return u.values(macs[0]), nil
}

// genuine returns the expiry of a URL if a key of the ring has signed it and its parameters are as
// they were made.
func genuine(from *url.URL, keys seal.Ring) (expires time.Time, is bool) {
	query, err := url.ParseQuery(from.RawQuery)
	if err != nil {
		return expires, false
	}
	if expires, err = time.Parse(signedTime, query.Get("se")); err != nil {
		return expires, false
	}
	u := signed{from.Path, expires}
	macs, err := keys.MACs(urlSigning, u.text())
	return expires, err == nil && slices.ContainsFunc(macs, func(mac []byte) bool {
		return hmac.Equal([]byte(u.values(mac)), []byte(query.Encode()))
	})
}
