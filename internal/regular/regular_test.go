package regular

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Files are read whole, by their links too; whatever else is there is an error at once.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	must(os.WriteFile(at("large"), large, 0o600))
	must(os.WriteFile(at("empty"), nil, 0o600))
	must(os.Symlink("large", at("link")))
	must(unix.Mkfifo(at("pipe"), 0o600))
	must(unix.Mknod(at("socket"), unix.S_IFSOCK|0o600, 0))
	must(os.Symlink("/dev/zero", at("device")))
	for name, want := range map[string][]byte{"large": large, "link": large, "empty": nil} {
		if got, err := ReadFile(at(name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, want %d: %v", name, len(got), len(want), err)
		}
	}
	if text, err := ReadFile("/proc/self/status"); err != nil || len(text) == 0 {
		t.Errorf("a file whose size is not told: %q, %v", text, err)
	}
	for _, name := range []string{"pipe", "socket", "device", "."} {
		ended := make(chan error, 1)
		go func() {
			_, err := ReadFile(at(name))
			ended <- err
		}()
		select {
		case err := <-ended:
			if _, ok := errors.AsType[*fs.PathError](err); !ok || !errors.Is(err, ErrOther) {
				t.Errorf("%s: the error is %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s is waited for", name)
		}
	}
	if _, err := ReadFile(at("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
