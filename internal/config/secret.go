package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
)

const redacted = "[redacted]"

// Secret is a string that is redacted wherever it is shown: printing with any verb, logging and
// JSON encoding give "[redacted]", and "" when it is empty. Reveal gives the value.
type Secret string

// Reveal returns the secret itself, for the one place that uses it.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format hides the secret from every verb of fmt, wrong ones included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue hides the secret from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the secret from encoders, that of JSON among them. State files that must keep
// it use Config.Reveal.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Format shows the section as redacted JSON. Without it, a verb that does not fit a pointer makes
// fmt print what it points to, and ask no Secret in it.
func (t BootstrapToken) Format(f fmt.State, _ rune) { writeRedacted(f, t) }

// Format shows the section as redacted JSON, for the same reason.
func (p ServicePrincipal) Format(f fmt.State, _ rune) { writeRedacted(f, p) }

func writeRedacted(f fmt.State, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte(redacted)
	}
	_, _ = f.Write(text)
}
