package front

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

// How many items a page has, and after how many bytes it ends: ARM drops answers above 8 MB.
const (
	pageSize     = 200
	maxPageSize  = 1000
	maxPageBytes = 4 << 20
)

// page reads $top and $skipToken. A token is for the collection that it was made for.
func (a *API) page(r *request, collection string) (after string, size int, err error) {
	size = pageSize
	if top := r.query.Get("$top"); top != "" {
		n, err := strconv.Atoi(top)
		if err != nil || n < 1 {
			return "", 0, invalid("The value '%s' of $top is not a number of at least 1.",
				shorten(top))
		}
		size = min(n, maxPageSize)
	}
	token := r.query.Get("$skiptoken")
	if token == "" {
		return "", size, nil
	}
	after, ok := readSkipToken(a.Keys, collection, token)
	if !ok {
		return "", 0, arm.Errorf(400, "InvalidSkipToken",
			"The value of $skipToken is not one that this collection's nextLink has given. Begin "+
				"again without it.")
	}
	return after, size, nil
}

// nextLink is the URL of the next page, as the caller reaches us.
func (a *API) nextLink(r *request, collection, last string) (string, error) {
	token, err := skipToken(a.Keys, collection, last)
	if err != nil {
		return "", err
	}
	link := r.publicURL()
	query := url.Values{}
	for key, values := range link.Query() {
		if !strings.EqualFold(key, "$skipToken") {
			query[key] = values
		}
	}
	query.Set("$skipToken", token)
	link.RawQuery, link.Fragment = query.Encode(), ""
	return link.String(), nil
}

const paging = "page tokens"

func tokenMAC(key []byte, collection, last string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(collection + "\x00" + last))
	return h.Sum(nil)[:16]
}

// skipToken is the last key of a page, signed, so that nobody asks with it for what is elsewhere.
func skipToken(keys seal.Ring, collection, last string) (string, error) {
	derived, err := keys.Derive(paging)
	if err != nil {
		return "", err
	}
	mac := tokenMAC(derived[0], collection, last)
	return base64.RawURLEncoding.EncodeToString(append(mac, last...)), nil
}

func readSkipToken(keys seal.Ring, collection, token string) (string, bool) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(token)
	derived, err2 := keys.Derive(paging)
	if err != nil || err2 != nil || len(data) < 16 {
		return "", false
	}
	last, good := string(data[16:]), false
	for _, key := range derived {
		good = hmac.Equal(tokenMAC(key, collection, last), data[:16]) || good
	}
	return last, good
}
