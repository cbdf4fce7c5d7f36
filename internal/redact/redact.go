// Package redact takes secrets out of text, and makes the archive of such text that an operator
// sends to support. It knows nothing of nodes; package agent/support says what is collected, and
// which secrets this machine has.
package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Redacted stands for what was taken out.
const Redacted = "[redacted]"

// shortest is the length of the shortest secret that is looked for in other encodings too: those of
// a shorter one occur elsewhere.
const shortest = 6

// Redactor takes secrets out of texts: first those that it knows, in every usual encoding, then
// what looks like one. The zero value knows none. It may be used by several goroutines.
type Redactor struct {
	mu     sync.Mutex
	known  []string
	forms  []string       // of what is known, the longest first: one can be a part of another
	counts map[string]int // what was taken out, by kind
}

type pattern struct {
	name string
	find *regexp.Regexp
	// keep is what replaces a match, in which ${1} and ${2} are the parts that remain.
	keep string
	// prose means that a sentence may match, such as "cannot get a token: timeout".
	prose bool
}

// patterns are what secrets look like.
var patterns = sync.OnceValue(func() []pattern {
	const b64 = `[A-Za-z0-9+/=_-]`
	re := regexp.MustCompile
	return []pattern{
		{"private key", re(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*` +
			`PRIVATE KEY-----|\z)`), Redacted, false},
		{"JWT", re(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(\.[A-Za-z0-9_-]*)?`), Redacted, false},
		{"authorization", re(`(?i)\b(bearer|basic|sharedkey)(\s+|%20)[A-Za-z0-9._~+/=:-]{6,}`),
			"${1} " + Redacted, true},
		{"signature", re(`(?i)\b(sig|signature)(=|%3D)[^&\s"'\\]+`), "${1}=" + Redacted, false},
		{"bootstrap token", re(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), Redacted, false},
		{"URL with a password", re(`(://)[^/\s"'@:]*:[^\s"'@/]+@`), "${1}" + Redacted + "@", false},
		{"named secret", re(`(?i)((?:password|passwd|secret|token|api_?key|account_?key|client-?key` +
			`(?:-data)?|private_?key|authorization)["']?\s*[:=]\s*\[?\s*["']?)(` + b64 +
			`|[.~:%!$*@#]){6,}`), "${1}" + Redacted, true},
		{"environment", re(`(?m)^(\s*Environment=["']?[A-Za-z_][A-Za-z0-9_]*=).*$`), "${1}" + Redacted,
			true},
	}
})

// Know adds secrets. An encoded form of one is as secret as itself.
func (r *Redactor) Know(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range secrets {
		if s = strings.TrimSpace(s); s != "" && !slices.Contains(r.known, s) {
			r.known = append(r.known, s)
			r.forms = append(r.forms, forms(s)...)
		}
	}
	slices.SortFunc(r.forms, func(a, b string) int { return len(b) - len(a) })
}

// forms are a secret in every encoding in which it may be found. Base64 of a text that holds it
// has three forms, by where in a group of three bytes it begins; what its neighbours decide is
// left out.
func forms(s string) []string {
	list := []string{s, strings.Trim(strconv.Quote(s), `"`)}
	if quoted, err := json.Marshal(s); err == nil {
		list = append(list, strings.Trim(string(quoted), `"`))
	}
	if len(s) < shortest {
		return list
	}
	list = append(list, url.QueryEscape(s), url.PathEscape(s), hex.EncodeToString([]byte(s)),
		strings.ToUpper(hex.EncodeToString([]byte(s))))
	for offset := range 3 {
		text := append(bytes.Repeat([]byte{0}, offset), s...)
		whole := base64.RawStdEncoding.EncodeToString(text)
		from, to := (offset*8+5)/6, len(text)*8/6
		if to-from >= shortest {
			part := whole[from:to]
			list = append(list, part, strings.NewReplacer("+", "-", "/", "_").Replace(part))
		}
	}
	return list
}

// run is a text that may be base64.
var run = regexp.MustCompile(`[A-Za-z0-9+/_-]{24,}={0,2}`)

// Redact returns a text without secrets.
func (r *Redactor) Redact(text string) string { return r.redact(text, true) }

// RedactProse returns a text without secrets that keeps a sentence such as "no token: timeout".
func (r *Redactor) RedactProse(text string) string { return r.redact(text, false) }

func (r *Redactor) redact(text string, all bool) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = make(map[string]int)
	}
	for _, s := range r.forms {
		if n := strings.Count(text, s); n > 0 {
			r.counts["known secret"] += n
			text = strings.ReplaceAll(text, s, Redacted)
		}
	}
	for _, p := range patterns() {
		if p.prose && !all {
			continue
		}
		text = p.find.ReplaceAllStringFunc(text, func(found string) string {
			if strings.Contains(found, Redacted) && p.name != "environment" {
				return found
			}
			r.counts[p.name]++
			return p.find.ReplaceAllString(found, p.keep)
		})
	}
	return run.ReplaceAllStringFunc(text, func(found string) string {
		if r.hides(found, 3) {
			r.counts["base64 of a secret"]++
			return Redacted
		}
		return found
	})
}

// hides reports whether a text is base64 of one with a secret, perhaps of base64 of that.
func (r *Redactor) hides(text string, deep int) bool {
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	decoded, err := base64.RawStdEncoding.DecodeString(text[:len(text)/4*4])
	if err != nil {
		return false
	}
	inner := string(decoded)
	known := func(s string) bool { return len(s) >= shortest && strings.Contains(inner, s) }
	matches := func(p pattern) bool { return p.find.MatchString(inner) }
	if slices.ContainsFunc(r.known, known) || slices.ContainsFunc(patterns(), matches) {
		return true
	}
	return deep > 0 && slices.ContainsFunc(run.FindAllString(inner, -1),
		func(found string) bool { return r.hides(found, deep-1) })
}
