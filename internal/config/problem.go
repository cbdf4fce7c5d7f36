package config

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Problem is one error in a configuration.
type Problem struct {
	// Path is the setting, as users write it: node.labels["a.b/c"], node.taints[0]; "": the document.
	Path string `json:"path"`
	// Value is the value found, in JSON, shortened; "[redacted]" for a secret, "" if it does not help.
	Value   string `json:"value,omitempty"`
	Message string `json:"message"` // what is allowed or what to do
}

// String returns the problem on one line.
func (p Problem) String() string {
	text := p.Message
	if p.Value != "" {
		text = p.Value + " is not allowed: " + text
	}
	if p.Path != "" {
		text = p.Path + ": " + text
	}
	return text
}

// Problems holds all errors in a configuration, ordered by path.
type Problems []Problem

// Error lists the problems, one per line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// AsProblems lists the problems in an error of Load. Other errors become problems without a path.
func AsProblems(err error) Problems {
	list := Problems{}
	joined, several := err.(interface{ Unwrap() []error })
	problems, ok := errors.AsType[Problems](err)
	switch {
	case several:
		for _, next := range joined.Unwrap() {
			list = append(list, AsProblems(next)...)
		}
	case ok:
		return problems
	case err != nil:
		list = append(list, Problem{Message: err.Error()})
	}
	return list
}

// Warning is about a setting that works but that the user should review; it has no Value.
type Warning = Problem

type report struct {
	problems Problems
	warnings []Warning
	what     string // name of the document; "" is a configuration, which has aliases
	// written maps the path of a setting to the older or newer name that the user gave it.
	written map[string]string
	// newer is set if the document may have members unknown here; unreadable is set if nothing in it
	// can be interpreted, which is then the only problem reported.
	newer, unreadable bool
}

func (r *report) add(path, value, message string) {
	if r.unreadable && len(r.problems) > 0 {
		return
	}
	path = cmp.Or(r.written[path], path)
	r.problems = append(r.problems, Problem{Path: path, Value: value, Message: message})
}

func (r *report) warn(path, message string) {
	r.warnings = append(r.warnings, Warning{Path: path, Message: message})
}

func (r *report) need(path string, set bool, message string) {
	if !set && !r.spoiled(path) {
		r.add(path, "", message)
	}
}

// spoiled reports whether one of the paths, or an object around it, already has a problem.
func (r *report) spoiled(paths ...string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		path = cmp.Or(r.written[path], path)
		above := func(p Problem) bool { return p.Path != "" && Below(path, p.Path) }
		return slices.ContainsFunc(r.problems, above)
	})
}

// err returns the problems by path, with the configuration's secrets redacted; nil if none.
func (r *report) err(c Config) error {
	if len(r.problems) == 0 {
		return nil
	}
	secrets := c.Secrets()
	for i, p := range r.problems {
		if slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(p.Value, s) }) {
			r.problems[i].Value = redacted
		}
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return cmp.Compare(a.Path, b.Path) })
	return slices.Compact(r.problems)
}

// conceal redacts secrets in the wrong setting: user and query of URLs, bootstrap tokens.
func conceal(s string) string {
	if strings.Contains(s, "://") {
		s = userInURL.ReplaceAllString(s, "://"+redacted+"@")
		s = queryInURL.ReplaceAllString(s, "$1?"+redacted)
	}
	return tokenInText.ReplaceAllString(s, redacted)
}

var (
	userInURL   = regexp.MustCompile(`://.*@`)
	queryInURL  = regexp.MustCompile(`(://[^?]*)\?.*`)
	tokenInText = regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}`)
)

func cut(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}

// show quotes and shortens a string for a problem, and redacts possible secrets.
func show(s string) string { return strconv.Quote(cut(conceal(s))) }
