package seal

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/signing"
)

var said = signing.Statement{Kind: signing.Revision, UID: "u", Version: "7", Time: time.Now()}

func initial(path string) (Ring, error) { return Init(path, RootFile(path), time.Now()) }

func TestABoxOpensOnlyAsWhatItIs(t *testing.T) {
	ring := must(initial(filepath.Join(t.TempDir(), "keys.json")))
	box := ring.Seal("nodes/a", []byte("a secret"))
	if bytes.Contains(box.Data, []byte("secret")) {
		t.Error("the content is readable")
	}
	refused(t, "the box of one row opened as that of another", of(ring.Open("nodes/b", box)), "")
	for i := range box.Data {
		bent := Box{Key: box.Key, Wrapped: box.Wrapped, Data: bytes.Clone(box.Data)}
		bent.Data[i] ^= 1
		refused(t, fmt.Sprintf("the box with another byte %d", i), of(ring.Open("nodes/a", bent)), "")
	}
}

// Replicas read the file one after the other. In the order of `keys` each can open, at any time,
// every box of another, and verify every signature.
func TestKeysAreReplacedWhileReplicasRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	first := must(initial(path))
	refused(t, "a file that is there", of(initial(path)), "keys add")
	refused(t, "one key is promoted", of(Promote(path)), "keys add")
	signer, signature, _ := first.Sign(said)
	replicas := []Ring{first, first}
	understood := func(when string) {
		t.Helper()
		for i, sealer := range replicas {
			box := sealer.Seal("x", []byte("content"))
			macs := sealer.MACs("signing", "text")
			id, by, _ := sealer.Sign(said)
			for k, other := range replicas {
				_, opened := other.Open("x", box)
				for what, err := range map[string]error{
					"the first signature": other.Verify(signer, signature, said),
					"the signature":       other.Verify(id, by, said), "the box": opened,
				} {
					if err != nil {
						t.Errorf("%s: replica %d refuses %s of %d: %v", when, k, what, i, err)
					}
				}
				if !slices.ContainsFunc(other.MACs("signing", "text"), func(mac []byte) bool {
					return bytes.Equal(mac, macs[0])
				}) {
					t.Errorf("%s: replica %d cannot check what %d has signed", when, k, i)
				}
			}
		}
	}
	restart := func(what string) {
		t.Helper()
		for i := range replicas {
			understood(fmt.Sprintf("%s, %d restarted", what, i))
			replicas[i] = must(Load(path))
		}
		understood(what + ", all restarted")
	}
	old := first.Seal("y", []byte("old"))
	must(Add(path, RootFile(path), time.Now()))
	restart("add")
	if !replicas[0].Current(old) {
		t.Error("the added key seals before it is promoted")
	}
	must(Promote(path))
	restart("promote")
	if replicas[0].Current(old) {
		t.Error("a box under the old key counts as current")
	}
	boxes := map[string]int{old.Key: 2, replicas[0].Keys[0].ID: 7}
	refused(t, "a key is dropped that is needed", of(Drop(path, boxes)), "2 boxes")
	fresh, err := replicas[0].Rewrap("y", old)
	if err != nil || !replicas[0].Current(fresh) {
		t.Fatalf("rewrap: %v", err)
	}
	must(Drop(path, map[string]int{fresh.Key: 9}))
	restart("drop")
	if content, err := replicas[0].Open("y", fresh); err != nil || string(content) != "old" {
		t.Errorf("after the drop: %q, %v", content, err)
	}
	refused(t, "a dropped key opens", of(replicas[0].Open("y", old)), "not in the ring")
}

func TestKeysThatOthersReadAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	must(initial(path))
	must(0, os.Chmod(path, 0o640))
	refused(t, "keys that others read", of(Load(path)), "chmod 600")
	must(0, os.WriteFile(path, []byte(`{"keys":[{"id":"x","key":"c2hvcnQ="}]}`), 0o600))
	must(0, os.Chmod(path, 0o600))
	refused(t, "a short key", of(Load(path)), "32 bytes")
}

// Only the root key that certified the keys in a file can add another; lost keys are replaced under
// the same root.
func TestRootKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	first := must(initial(path))
	elsewhere := filepath.Join(t.TempDir(), "root.pem")
	refused(t, "a key is added without a root key", of(Add(path, elsewhere, time.Now())), "")
	strange := must(Init(filepath.Join(t.TempDir(), "keys.json"), elsewhere, time.Now()))
	refused(t, "a key is added with another root", of(Add(path, elsewhere, time.Now())), "not that of")
	id, signature, err := first.Sign(said)
	must(0, err)
	refused(t, "the signature elsewhere", strange.Verify(id, signature, said), "")
	for _, file := range []string{path, RootFile(path)} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	must(0, os.Remove(path))
	second, err := initial(path)
	if err != nil || !bytes.Equal(second.Root, first.Root) {
		t.Errorf("keys after a loss have another root: %v", err)
	}
}

func TestPrivate(t *testing.T) {
	for _, tt := range []struct {
		credentials, path string
		mode              fs.FileMode
		want              bool
	}{
		{"", "/etc/keys.json", 0o600, true},
		{"", "/etc/keys.json", 0o440, false},
		{"", "/etc/keys.json", 0o604, false},
		{"/run/credentials/x.service", "/run/credentials/x.service/keys.json", 0o440, true},
		{"/run/credentials/x.service/", "/run/credentials/x.service/keys.json", 0o400, true},
		{"/run/credentials/x.service", "/run/credentials/x.service/keys.json", 0o444, false},
		{"/run/credentials/x.service", "/run/credentials/x.service/keys.json", 0o460, false},
		{"/srv/x", "/srv/x/keys.json", 0o440, true},
		{"", "/run/credentials/x.service/keys.json", 0o440, true},
		{"", "/run/credentials/x.service/keys.json", 0o444, false},
		{"", "/run/credentials/keys.json", 0o440, false},
		{"", "/run/credentials/x.service/y/keys.json", 0o440, false},
		{"", "/run/credentials/../keys/keys.json", 0o440, false},
		{"", "keys.json", 0o440, false},
		{"/run/credentials/x.service", "/etc/keys.json", 0o440, false},
	} {
		t.Setenv("CREDENTIALS_DIRECTORY", tt.credentials)
		if got := Private(tt.path, tt.mode); got != tt.want {
			t.Errorf("%s, %o, with %q: %v", tt.path, tt.mode, tt.credentials, got)
		}
	}
}

// of returns the error of a call.
func of[T any](_ T, err error) error { return err }

// refused reports that something has not failed, or with an error without a part.
func refused(t *testing.T, what string, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("%s: %v, want %q", what, err, part)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
