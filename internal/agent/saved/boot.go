package saved

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/Azure/AKSFlexNode/internal/machinekey"
)

// BootFile is the id of the machine's boot, below RunDir, which no reboot or copied disk has.
const BootFile = "boot-id"

// BootID returns the id of the machine's boot, which the first process makes.
func (k Keys) BootID() (string, error) {
	name := filepath.Join(k.RunDir, BootFile)
	id, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = k.makeBootID(name); err == nil {
			id, err = os.ReadFile(name)
		}
	}
	if err != nil {
		return "", fmt.Errorf("cannot tell the boots of the machine apart: %w", err)
	}
	return string(id), nil
}

// makeBootID writes an id, unless another process is faster: two in one boot would be two machines.
func (k Keys) makeBootID(name string) (err error) {
	if err := os.MkdirAll(k.RunDir, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(k.RunDir, ".boot-*") // 0600
	if err != nil {
		return err
	}
	_, err = temp.WriteString(machinekey.NewBoot())
	if err = errors.Join(err, temp.Close()); err == nil {
		if err = os.Link(temp.Name(), name); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, os.Remove(temp.Name()))
}
