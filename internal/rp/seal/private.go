package seal

import (
	"io/fs"
	"os"
	"path/filepath"
)

// Private tells, by its mode, whether only this program's user may read a file. systemd may hand a
// service its credentials by an access list for its user, which a mode shows as the right of a
// group that has none (systemd.exec(5), LoadCredential=).
func Private(path string, mode fs.FileMode) bool {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	if dir != "" && filepath.Dir(path) == filepath.Clean(dir) {
		return mode.Perm()&^0o740 == 0
	}
	return mode.Perm()&0o077 == 0
}
