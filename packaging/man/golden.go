package man

import (
	"fmt"
	"os"
	"path/filepath"
)

// Check compares a page with the file in dir, or writes the file.
func Check(dir, file, page string, update bool) error {
	path := filepath.Join(dir, file)
	if update {
		return os.WriteFile(path, []byte(page), 0o644)
	}
	kept, err := os.ReadFile(path)
	if err == nil && string(kept) != page {
		err = fmt.Errorf("%s is out of date: run `make golden`", path)
	}
	return err
}
