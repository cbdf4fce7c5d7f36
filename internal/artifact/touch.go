package artifact

import (
	"fmt"
	"os"
)

// Touch is told what is about to be done to the store, before each file or directory that is made,
// renamed, cut short or removed. An error keeps it from being done. It may never return: whoever
// tests what a killed process leaves behind stops it there.
type Touch func(what string) error

// before announces one change; its error is a fault of this machine.
func (t Touch) before(format string, args ...any) error {
	if t == nil {
		return nil
	}
	if err := t(fmt.Sprintf(format, args...)); err != nil {
		return diskError(err)
	}
	return nil
}

// tree is a directory that is being filled.
type tree struct {
	*os.Root
	touch Touch
}
