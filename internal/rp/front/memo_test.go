package front

import (
	"fmt"
	"testing"
)

// A memo keeps what it was given, and does not grow without end.
func TestMemo(t *testing.T) {
	var m memo[string, int]
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
	for i := 0; len(m.kept) < memoSize; i++ {
		m.keep(fmt.Sprint("full ", i), i)
	}
	m.keep("full 0", -1)
	if got, _ := m.get("full 0"); got != -1 || len(m.kept) != memoSize {
		t.Errorf("what is kept again: %d, with %d others", got, len(m.kept)-1)
	}
	if len(m.kept) > memoSize {
		t.Errorf("%d are kept", len(m.kept))
	}
}
