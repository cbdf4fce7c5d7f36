package front

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

const operationIDs = "operation ids"

// inLowerCase has ids survive whoever changes their case, as ARM may.
var inLowerCase = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").
	WithPadding(base32.NoPadding)

func operationMAC(key []byte, subscription string, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(subscription + "\x00"))
	h.Write(text)
	return h.Sum(nil)[:16]
}

// operationID is the id of an operation in a subscription that tells what it is about: signed, so
// that nobody asks with it for what is not his.
func operationID(
	keys seal.Ring, subscription string, o flexnode.Operation,
) (string, error) {
	derived, err := keys.Derive(operationIDs)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	return inLowerCase.EncodeToString(
		append(operationMAC(derived[0], subscription, text), text...)), nil
}

func readOperationID(
	keys seal.Ring, subscription, id string,
) (o flexnode.Operation, ok bool) {
	data, err := inLowerCase.DecodeString(id)
	derived, failed := keys.Derive(operationIDs)
	if err != nil || failed != nil || len(data) < 16 {
		return o, false
	}
	for _, key := range derived {
		ok = hmac.Equal(operationMAC(key, subscription, data[16:]), data[:16]) || ok
	}
	return o, ok && json.Unmarshal(data[16:], &o) == nil
}

// isOperation reports whether something can be the id of an operation.
func isOperation(s string) bool {
	return isGUID(s) || len(s) > 26 && len(s) <= 4096 &&
		strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz234567") == ""
}
