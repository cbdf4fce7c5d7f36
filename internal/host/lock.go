package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Holder describes the process that holds a lock.
type Holder struct {
	PID   int       `json:"pid"`
	Verb  string    `json:"verb"`
	Since time.Time `json:"since"`
}

// LockedError reports that another command is running on this machine.
type LockedError struct{ Holder Holder }

func (e *LockedError) Error() string {
	end := "end it"
	if e.Holder.Verb == "agent" { // a service that ends by a signal stays away until the next boot
		end = "stop its service, and start that again afterwards"
	}
	return fmt.Sprintf("cannot start: `aks-flex-node %s` (pid %d) has been working on this machine "+
		"since %s; wait for it, or %s",
		e.Holder.Verb, e.Holder.PID, e.Holder.Since.Format(time.TimeOnly), end)
}

// Acquire takes the lock called name in dir, which it creates if needed, so that no two verbs run
// at once. The file names its holder. The lock ends when the file is closed or the process ends.
func Acquire(dir, name string, holder Holder) (*os.File, error) {
	path := filepath.Join(dir, name)
	deadline := time.Now().Add(time.Second) // a killed process may hold the lock for a moment
	for ; ; time.Sleep(20 * time.Millisecond) {
		file, err := tryLock(dir, path)
		if _, locked := errors.AsType[*LockedError](err); locked && time.Now().Before(deadline) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := errors.Join(file.Truncate(0), json.NewEncoder(file).Encode(holder)); err != nil {
			file.Close()
			return nil, fmt.Errorf("cannot write %s: %w", path, err)
		}
		return file, nil
	}
}

// tryLock takes the lock if it is free. A file that its holder has just removed counts as locked.
func tryLock(dir, path string) (*os.File, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cannot make %s: %w", dir, err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock: %w", err)
	}
	var st unix.Stat_t
	if err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		if err = unix.Fstat(int(file.Fd()), &st); err == nil && st.Nlink > 0 {
			return file, nil
		}
	}
	defer file.Close()
	if except(err, unix.EWOULDBLOCK) != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	locked := &LockedError{}
	_ = json.NewDecoder(file).Decode(&locked.Holder) // no name yet while the holder writes it
	return nil, locked
}
