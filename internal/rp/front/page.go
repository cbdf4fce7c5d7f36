package front

import (
	"crypto/hmac"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

// Limits of a page, in items and in bytes: many answers may wait for slow clients.
const pageSize, maxPageSize, maxPageBytes = 200, 1000, 512 << 10

// page reads $top and $skipToken. A token is valid only for its collection.
func (a *API) page(r *request, collection string) (after string, size int, err error) {
	size = pageSize
	if top := r.query.Get("$top"); top != "" {
		n, err := strconv.Atoi(top)
		if err != nil || n < 1 {
			return "", 0, invalid("The value '%s' of $top is not a number of at least 1.", shorten(top))
		}
		size = min(n, maxPageSize)
	}
	token := r.query.Get("$skiptoken")
	if token == "" {
		return "", size, nil
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(token)
	last, ok := checked(a.Credentials.Keys, paging, collection, data)
	if err != nil || !ok {
		return "", 0, arm.Errorf(400, "InvalidSkipToken",
			"The value of $skipToken does not come from this collection's nextLink. Start again without "+
				"it.")
	}
	return string(last), size, nil
}

// nextLink returns the URL of the next page, as the caller reaches the provider.
func (a *API) nextLink(r *request, collection, last string) string {
	token, link := signed(a.Credentials.Keys, paging, collection, []byte(last)), r.publicURL()
	query := link.Query()
	maps.DeleteFunc(query, func(key string, _ []string) bool {
		return strings.EqualFold(key, "$skipToken")
	})
	query.Set("$skipToken", base64.RawURLEncoding.EncodeToString(token))
	link.RawQuery, link.Fragment = query.Encode(), ""
	return link.String()
}

// The purposes of signatures: for the last key of a page of a collection, for an operation of a
// subscription, and for a time for machines with wrong clocks.
const paging, operationIDs, nonceTimes = "page tokens", "operation ids", "nonces"

const macSize = 16

// signed returns a text with a signature: callers bring it back, and cannot make one of their own.
func signed(keys seal.Ring, what, of string, text []byte) []byte {
	return slices.Concat(keys.MACs(what, of+"\x00"+string(text))[0][:macSize], text)
}

// checked returns a text that was signed with any of the keys.
func checked(keys seal.Ring, what, of string, data []byte) (text []byte, good bool) {
	if len(data) < macSize {
		return nil, false
	}
	text = data[macSize:]
	return text, slices.ContainsFunc(keys.MACs(what, of+"\x00"+string(text)), func(mac []byte) bool {
		return hmac.Equal(mac[:macSize], data[:macSize])
	})
}
