package artifact

import (
	"fmt"
	"os"
)

// Touch is told what is about to be done to the store, before each file or directory that is made,
// renamed, cut short or removed, and done is called when the function that does it returns. An
// error keeps it from being done. It may never return: whoever tests what a killed process leaves
// behind stops it there, and waits for the others to be done.
type Touch func(what string) (done func(), err error)

// before announces one change; its error is a fault of this machine.
func (t Touch) before(format string, args ...any) (done func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	if done, err = t(fmt.Sprintf(format, args...)); err != nil {
		return nil, diskError(err)
	}
	return done, nil
}

// tree is a directory that is being filled.
type tree struct {
	*os.Root
	touch Touch
}
