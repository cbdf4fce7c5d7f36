package apply

import (
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// BlindError lists things that a host failed to observe. It says nothing of all others.
type BlindError struct{ Things []state.Unknown }

func (e *BlindError) Error() string {
	texts := make([]string, len(e.Things))
	for i, u := range e.Things {
		texts[i] = u.Why
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the causes.
func (e *BlindError) Unwrap() []error {
	errs := make([]error, len(e.Things))
	for i, u := range e.Things {
		errs[i] = u.Err
	}
	return errs
}

// Blind returns a BlindError of all that a host failed to observe; nil when it observed everything
// that this release knows.
func Blind(unknown []state.Unknown) error {
	failed := slices.DeleteFunc(slices.Clone(unknown), func(u state.Unknown) bool {
		return u.Err == nil
	})
	if len(failed) == 0 {
		return nil
	}
	return &BlindError{failed}
}
