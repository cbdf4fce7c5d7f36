package progress

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestColumns(t *testing.T) {
	for text, want := range map[string]int{
		"":            0,
		"node":        4,
		"✓ naïve":     7,
		"nai\u0308ve": 5, // a combining mark
		"ノード":         6,
		"ｎ１":          4, // fullwidth forms
	} {
		if got := columns.StringWidth(text); got != want {
			t.Errorf("columns(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"kubelet", 7, "kubelet"},
		{"kubelet", 6, "kubel…"},
		{"ノード", 6, "ノード"},
		{"ノード", 5, "ノー…"},
		{"ノード", 4, "ノ…"}, // half a character does not exist
	} {
		if got := columns.Truncate(c.text, c.limit, "…"); got != c.want {
			t.Errorf("clip(%q, %d) = %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  []string
	}{
		{"", 10, []string{""}},
		{"cannot start kubelet", 10, []string{"cannot", "start", "kubelet"}},
		{"cannot start kubelet", 12, []string{"cannot start", "kubelet"}},
		{"see https://example.org", 10, []string{"see", "https://ex", "ample.org"}},
		{"ノード ノード", 6, []string{"ノード", "ノード"}},
		{"ノ", 1, []string{"ノ"}},
	} {
		if diff := cmp.Diff(c.want, wrap(c.text, c.limit)); diff != "" {
			t.Errorf("wrap(%q, %d), -want +got:\n%s", c.text, c.limit, diff)
		}
	}
}
