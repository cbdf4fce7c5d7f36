package front

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// nameRule describes the valid values of a variable segment of a path.
type nameRule struct {
	name    string
	good    func(string) bool
	code    string
	message string // with the name in place of %s
}

var nameRules = []nameRule{
	{"subscription", isGUID, "InvalidSubscriptionId",
		"The provided subscription identifier '%s' is malformed or invalid."},
	{"group", isGroup, "InvalidResourceGroupName", "The resource group name '%s' is invalid."},
	{"cluster", isCluster, "InvalidResourceName",
		"The cluster name '%s' is invalid: 1 to 63 letters, digits, '-' and '_', a letter or " +
			"digit first and last."},
	{"node", isNode, "InvalidResourceName",
		"The node name '%s' is invalid: in lower case it must be the name of a Kubernetes node " +
			"(DNS-1123: letters, digits, '-' and '.', at most 253)."},
	{"operation", isOperation, "InvalidOperationId", "The operation id '%s' is malformed or invalid."},
}

// checkNames checks the variable segments of the path. It is on the way of every poll, so it uses
// no regular expressions.
func (a *API) checkNames(_ http.ResponseWriter, r *request) error {
	for _, rule := range nameRules {
		if value := r.names.of(rule.name); value != "" && !rule.good(value) {
			return arm.Errorf(400, rule.code, rule.message, shorten(value))
		}
	}
	return nil
}

func isGUID(s string) bool {
	return len(s) == 36 && uuid.Validate(s) == nil // 36 bytes: without braces and prefix
}

func isAlphanumeric(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' }

// isGroup follows ARM's rules for names of resource groups.
func isGroup(s string) bool {
	for _, c := range s {
		if !unicode.IsLetter(c) && !unicode.IsNumber(c) && !strings.ContainsRune("_().-", c) {
			return false
		}
	}
	return s != "" && utf8.RuneCountInString(s) <= 90 && !strings.HasSuffix(s, ".")
}

func isCluster(s string) bool { return isWord(s, "-_") }

// isNode reports whether a name is, in lower case, a DNS-1123 subdomain.
func isNode(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !isWord(label, "-") {
			return false
		}
	}
	return len(s) <= 253
}

// isWord is 1 to 63 letters and digits, with others of a few in between.
func isWord(s, between string) bool {
	if len(s) == 0 || len(s) > 63 || !isAlphanumeric(s[0]) || !isAlphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte(between, s[i]) < 0 {
			return false
		}
	}
	return true
}
