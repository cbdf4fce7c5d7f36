package front

import (
	"encoding/base32"
	"encoding/json"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

const lowerBase32 = "abcdefghijklmnopqrstuvwxyz234567"

// inLowerCase has ids survive a change of their case, as by ARM.
var inLowerCase = base32.NewEncoding(lowerBase32).WithPadding(base32.NoPadding)

// operationID is the id of an operation in a subscription that tells what it is about.
func operationID(keys seal.Ring, subscription string, o flexnode.Operation) (string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	id, err := signed(keys, operationIDs, subscription, text)
	return inLowerCase.EncodeToString(id), err
}

func readOperationID(keys seal.Ring, subscription, id string) (o flexnode.Operation, ok bool) {
	data, err := inLowerCase.DecodeString(id)
	text, ok := checked(keys, operationIDs, subscription, data)
	return o, err == nil && ok && json.Unmarshal(text, &o) == nil
}

// isOperation reports whether something can be the id of an operation.
func isOperation(s string) bool {
	return isGUID(s) || len(s) > 26 && len(s) <= 4096 &&
		strings.Trim(strings.ToLower(s), lowerBase32) == ""
}
