// Package redact removes secrets from text, and writes the archive of such text that an operator
// sends to support. It knows nothing of nodes; package agent/support decides what is collected, and
// provides the secrets of this machine.
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

// Redacted replaces removed text.
const Redacted = "[redacted]"

const shortest = 6 // min length for which other encodings of a secret are searched too

// Redactor removes secrets from texts: known ones, in every usual encoding, then text that looks
// like one. The zero value knows none. It is safe for concurrent use.
type Redactor struct {
	mu     sync.Mutex
	known  []string
	forms  []string       // the encodings of known, longest first: one can be part of another
	counts map[string]int // the numbers of redactions, by kind
}

const named = "named secret" // the kind of a value whose setting is named like a secret

// names matches the end of a secret setting's name: gitleaks' rule generic-api-key, and more.
const names = `(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|auth|authorization|credential|` +
	`creds|cookie|(?:api|account|access|client|private|secret|shared|symmetric|encryption|signing|` +
	`storage|master|subscription)[-_ ]?key)s?(?:[-_]?(?:data|value|base64|b64|hash|[0-9]+))*`

var secretName = regexp.MustCompile(`(?i)(?:` + names + `|\bheaders?)$`)

type pattern struct {
	name  string
	find  *regexp.Regexp
	keep  string // replaces a match; ${1} and ${2} are the parts that remain
	prose bool   // a sentence may match, such as "cannot get a token: timeout"
}

var patterns = sync.OnceValue(func() []pattern {
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
		{"environment", re(`(?m)^(\s*Environment=["']?[A-Za-z_][A-Za-z0-9_]*=)(?:[^\n]*\\\n)*.*$`),
			"${1}" + Redacted, true},
		// From the rules of gitleaks 8 (config/gitleaks.toml), for services that a node may use.
		{"credential of a service", re(`\b(?:(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}|` +
			`gh[pousr]_[0-9A-Za-z]{36}|github_pat_\w{82}|glpat-[\w-]{20}|AIza[\w-]{35}|` +
			`[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}|hv[sbr]\.[\w-]{24,}|xox[a-z]-[\w-]{10,}|` +
			`npm_[A-Za-z0-9]{36}|dckr_[op]at_[\w-]{27}|AGE-SECRET-KEY-1[0-9A-Z]{58})`), Redacted, false},
		{named, re(`(?i)["']?[\w.-]*(?:` + names + `)["']?\]?[ \t]*(?:[:=]|%3D)[ \t]*|--[\w-]*(?:` +
			names + `)[ \t]+`), "", true},
	}
})

// Know adds secrets. Their encoded forms are secret too.
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

// forms returns a secret in every encoding. Base64 of a text that contains it has three forms, by
// its offset in a group of three bytes, without the characters that its neighbours affect.
func forms(s string) []string {
	quoted, _ := json.Marshal(s) // a text can be encoded
	list := []string{s, strings.Trim(strconv.Quote(s), `"`), strings.Trim(string(quoted), `"`)}
	if len(s) < shortest {
		return list
	}
	list = append(list, url.QueryEscape(s), url.PathEscape(s), hex.EncodeToString([]byte(s)),
		strings.ToUpper(hex.EncodeToString([]byte(s))))
	for offset := range 3 {
		text := append(bytes.Repeat([]byte{0}, offset), s...)
		whole := base64.RawStdEncoding.EncodeToString(text)
		if from, to := (offset*8+5)/6, len(text)*8/6; to-from >= shortest {
			part := whole[from:to]
			list = append(list, part, strings.NewReplacer("+", "-", "/", "_").Replace(part))
		}
	}
	return list
}

// run matches text that may be base64.
var run = regexp.MustCompile(`[A-Za-z0-9+/_-]{24,}={0,2}`)

// Redact returns a text without secrets.
func (r *Redactor) Redact(text string) string { return r.redact(text, true) }

// RedactProse returns a text without secrets, but keeps a sentence such as "no token: timeout".
func (r *Redactor) RedactProse(text string) string { return r.redact(text, false) }

func (r *Redactor) redact(text string, all bool) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.forms {
		if n := strings.Count(text, s); n > 0 {
			r.count("known secret", n)
			text = strings.ReplaceAll(text, s, Redacted)
		}
	}
	for _, p := range patterns() {
		if p.prose && !all {
			continue
		}
		if p.name == named {
			text = r.withoutNamed(text, p.find)
			continue
		}
		text = p.find.ReplaceAllStringFunc(text, func(found string) string {
			if strings.Contains(found, Redacted) && p.name != "environment" {
				return found
			}
			r.count(p.name, 1)
			return p.find.ReplaceAllString(found, p.keep)
		})
	}
	return run.ReplaceAllStringFunc(text, func(found string) string {
		if r.hides(found, 3) {
			r.count("base64 of a secret", 1)
			return Redacted
		}
		return found
	})
}

// count counts redactions. The caller holds the lock.
func (r *Redactor) count(kind string, n int) {
	if r.counts == nil {
		r.counts = make(map[string]int)
	}
	r.counts[kind] += n
}

// withoutNamed removes the values that follow the names of secrets.
func (r *Redactor) withoutNamed(text string, name *regexp.Regexp) string {
	var out strings.Builder
	for {
		at := name.FindStringIndex(text)
		if at == nil {
			return out.String() + text
		}
		out.WriteString(text[:at[1]])
		value := valueOf(text[at[0]:at[1]], text[at[1]:])
		text = text[at[1]+len(value):]
		switch {
		case value == "" || value == `""`:
			out.WriteString(value)
			continue
		case quotedValue.FindString(value) == value:
			out.WriteString(`"` + Redacted + `"`)
		default:
			out.WriteString(Redacted)
		}
		r.count(named, 1)
	}
}

// valueOf returns the value at the start of the text after a name: up to its quote, if its name is
// quoted or another name follows, else to the end of the line.
func valueOf(name, text string) string {
	line, _, _ := strings.Cut(text, "\n")
	value := quotedValue.FindString(line)
	after := line[len(value):]
	if value != "" && (name[0] == '"' || after == "" || nextName.MatchString(after)) {
		return value
	}
	return line
}

var (
	quotedValue = regexp.MustCompile(`^"(?:\\.|[^"\\])*"`)
	nextName    = regexp.MustCompile(`^\s+[\w.-]+=`)
)

// hides reports whether a text is base64 of one with a secret, or base64 of that.
func (r *Redactor) hides(text string, deep int) bool {
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	decoded, err := base64.RawStdEncoding.DecodeString(text[:len(text)/4*4])
	if err != nil {
		return false
	}
	inner := string(decoded)
	known := func(s string) bool { return len(s) >= shortest && strings.Contains(inner, s) }
	matches := func(p pattern) bool { return p.find.MatchString(inner) }
	return slices.ContainsFunc(r.known, known) || slices.ContainsFunc(patterns(), matches) ||
		deep > 0 && slices.ContainsFunc(run.FindAllString(inner, -1),
			func(found string) bool { return r.hides(found, deep-1) })
}

// assigned matches the values of settings named like secrets, in a text of unknown format.
var assigned = regexp.MustCompile(`(?i)(?:` + names + `|key)["']?\s*[:=]\s*["']?([^\s"',}]{6,})`)

// KnowText adds the secrets in a text whose purpose is to hold them.
func (r *Redactor) KnowText(data []byte) {
	docs, err := readYAML(string(data)) // or JSON, which is YAML
	if err == nil && len(docs) > 0 && !slices.ContainsFunc(docs, isText) {
		for _, doc := range docs {
			r.knowValues(doc, "")
		}
		return
	}
	text := strings.TrimSpace(string(data))
	for _, found := range assigned.FindAllStringSubmatch(text, -1) {
		r.guess(found[1])
	}
	if !strings.Contains(text, "\n") && !strings.Contains(text, " ") {
		r.guess(text)
	}
	if strings.Contains(text, "PRIVATE KEY") {
		r.knowKey(text)
	}
}

// guess adds a likely secret. A shorter text may be a word that occurs elsewhere.
func (r *Redactor) guess(text string) {
	if len(text) > 5 {
		r.Know(text)
	}
}

// knowKey adds the lines of private keys: each is a secret, too.
func (r *Redactor) knowKey(text string) {
	secret := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "-----BEGIN"):
			secret = strings.Contains(line, "PRIVATE KEY")
		case strings.HasPrefix(line, "-----END"):
			secret = false
		case secret:
			r.guess(line)
		}
	}
}

func (r *Redactor) knowValues(v any, name string) {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			r.knowValues(member, key)
		}
	case []any:
		for _, item := range v {
			r.knowValues(item, name)
		}
	case string:
		if secretName.MatchString(name) {
			r.guess(v)
			if _, half, ok := strings.Cut(v, "."); ok && len(half) == 16 {
				r.guess(half) // half of a bootstrap token
			}
		}
	}
}
