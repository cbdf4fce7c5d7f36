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

// LeftOut returns the tests that cannot run here with the reasons. In the file, a reason marked
// with "#" precedes the names of its tests.
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

// Quick returns the tests to run after each kind of change.
func Quick() []string { return lines(quick) }

// Few returns those of Quick that `make test` has time for.
func Few() []string { return lines(few) }

func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}
