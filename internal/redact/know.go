package redact

import (
	"regexp"
	"slices"
	"strings"
)

// assigned are the values of settings that are named like secrets, in a text of no format.
var assigned = regexp.MustCompile(`(?i)(?:` + names + `|key)["']?\s*[:=]\s*["']?([^\s"',}]{6,})`)

// KnowText adds the secrets of a text that is there for them.
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

// guess adds what may be a secret. A shorter one is a word that occurs elsewhere.
func (r *Redactor) guess(text string) {
	if len(text) > 5 {
		r.Know(text)
	}
}

// knowKey adds the lines of private keys: a piece of one is secret, too.
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

// knowValues adds the values of a document that are named like secrets.
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
				r.guess(half) // a bootstrap token's
			}
		}
	}
}
