package state

import (
	"slices"
	"testing"
)

// Another release renders b, c, e and f in another way; the change itself is of d and g.
func TestAmend(t *testing.T) {
	list := func(words ...string) (d Desired) {
		for _, w := range words {
			d = append(d, Item{Resource: NewFile("/"+w[:1], 0o644, w)})
		}
		return d
	}
	texts := func(d Desired) (words []string) {
		for _, item := range d {
			words = append(words, item.Resource.(File).Content)
		}
		return words
	}
	runs := list("a", "b", "c", "d", "gone", "e", "h")
	before := list("a", "f", "c2", "b", "d", "e2", "h")
	after := list("a", "f", "c2", "b", "d3", "e2", "i")
	is := texts(runs.Amend(before, after))
	if want := []string{"a", "c", "b", "d3", "gone", "e", "i"}; !slices.Equal(is, want) {
		t.Errorf("the list is %q, want %q", is, want)
	}
	joining, joined := list("a"), list("a2")
	joined[0].Only = "joined"
	both := slices.Concat(joining, joined)
	if is := texts(both.Amend(both, both)); !slices.Equal(is, []string{"a", "a2"}) {
		t.Errorf("of one key, it is %q", is)
	}
	if is := texts(after.Amend(after, after)); !slices.Equal(is, texts(after)) {
		t.Errorf("without a difference it is %q", is)
	}
}
