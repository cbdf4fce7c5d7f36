package progress

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A service has no terminal: warnings, notes, failed steps, and downloads that end or are retried
// are in its log. Bytes never are, the rest at level debug only.
func TestLog(t *testing.T) {
	if diff := cmp.Diff(`level=WARN msg="step failed" step=start reason=""
level=WARN msg="step failed" step=start reason="one two"
level=INFO msg="download done" artifact=kubelet bytes=2500000 took=1s
level=INFO msg="download done" artifact=kubectl bytes=0 took=0s
level=INFO msg="download is tried again" artifact=kubelet reason="one two"
level=WARN msg="one two"
level=INFO msg="one two"
`, logged(slog.LevelInfo)); diff != "" {
		t.Errorf("at level info, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(`level=DEBUG msg="step done" step=start result="one two" took=1.2s
level=WARN msg="step failed" step=start reason=""
level=WARN msg="step failed" step=start reason="one two"
level=DEBUG msg=waiting step=start for="one two"
level=INFO msg="download done" artifact=kubelet bytes=2500000 took=1s
level=INFO msg="download done" artifact=kubectl bytes=0 took=0s
level=INFO msg="download is tried again" artifact=kubelet reason="one two"
level=WARN msg="one two"
level=INFO msg="one two"
`, logged(slog.LevelDebug)); diff != "" {
		t.Errorf("at level debug, -want +got:\n%s", diff)
	}
}

// logged returns the log of one event of each kind at a level.
func logged(level slog.Level) string {
	var out strings.Builder
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: withoutTime}
	log := slog.New(slog.NewTextHandler(&out, options))
	for _, e := range every() {
		Log(log, e)
	}
	return out.String()
}
