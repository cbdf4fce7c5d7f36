package health

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNodeObserved(t *testing.T) {
	check(t, NodeObserved, []expect{
		blank("NotChecked"),
		{"systemd hangs", with(func(e *Evidence) {
			e.Observed = Tried(errors.Join(errors.New("kubelet.service: no answer"), errors.New("EIO")))
		}), False, "NotObserved", OwnerMachine, "kubelet.service: no answer; EIO"},
	})
}

// After a check that has failed the conditions are those of the last one, but for one.
func TestUnchecked(t *testing.T) {
	last := Evaluate(Watch, good())
	after := Unchecked(last, errors.New("the disk is full"), now())
	if len(after) != len(last) {
		t.Fatalf("%d conditions", len(after))
	}
	for i, c := range after {
		if changed := !cmp.Equal(c, last[i]); changed != (c.Type == NodeObserved) {
			t.Errorf("it was %+v and is %+v", last[i], c)
		}
	}
	if c, ok := First(after); !ok || c.Reason != "CheckFailed" {
		t.Errorf("the first is %+v", c)
	}
}
