package conformance

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed leftout.txt
var leftOut string

//go:embed quick.txt
var quick string

//go:embed few.txt
var few string

// LeftOut gives the tests that cannot run here, each with the reason: in the file a reason, marked
// by a "#", is followed by the names of its tests.
func LeftOut() (map[string]string, error) {
	reasons, reason := map[string]string{}, ""
	for _, line := range lines(leftOut) {
		text, is := strings.CutPrefix(line, "# ")
		switch {
		case is:
			reason = text
		case reason == "" || reasons[line] != "":
			return nil, fmt.Errorf("internal error: %q is left out twice or without a reason", line)
		default:
			reasons[line] = reason
		}
	}
	return reasons, nil
}

// Quick are the tests that are run after each kind of change.
func Quick() []string { return lines(quick) }

// Few are those of Quick that `make test` has time for.
func Few() []string { return lines(few) }

func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}
