package front

import (
	"fmt"
	"testing"
)

// A memo keeps what it was given, and does not grow without end.
func TestMemo(t *testing.T) {
	var m memo[int]
	if _, ok := m.get("0"); ok {
		t.Error("it has what it was not given")
	}
	for i := range 3*memoSize + 1 {
		key := fmt.Sprint(i)
		m.keep(key, i)
		if got, ok := m.get(key); !ok || got != i {
			t.Fatalf("%d: %d %v", i, got, ok)
		}
	}
	if len(m.kept) > memoSize {
		t.Errorf("%d are kept", len(m.kept))
	}
}
