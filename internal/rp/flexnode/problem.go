package flexnode

import (
	"fmt"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Problem is one problem of a request: its JSON path, and what to do.
type Problem struct{ Target, Message string }

// Problems lists all problems of a request.
type Problems []Problem

// Error lists the problems, one per line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.Target + ": " + one.Message
	}
	return strings.Join(lines, "\n")
}

// ARM returns a 400 with each problem and its path (RPC, error details); nil without any.
func (p Problems) ARM() *arm.Error {
	if len(p) == 0 {
		return nil
	}
	const code = "InvalidParameter"
	if len(p) == 1 {
		return &arm.Error{Status: 400, Code: code, Target: p[0].Target, Message: p[0].Message}
	}
	e := arm.Errorf(400, "MultipleErrorsOccurred",
		"The request has %d problems; see the details.", len(p))
	for _, one := range p {
		e.Details = append(e.Details,
			arm.Error{Code: code, Target: one.Target, Message: one.Message})
	}
	return e
}

// err returns the problems as an error; nil for none.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

func (p *Problems) add(target, format string, args ...any) {
	*p = append(*p, Problem{target, fmt.Sprintf(format, args...)})
}

// unless adds a problem if good is false.
func (p *Problems) unless(good bool, target, format string, args ...any) {
	if !good {
		p.add(target, format, args...)
	}
}

// shorten limits a text from a caller, so that it cannot fill a response or a log.
func shorten(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
