package seal

import (
	"io/fs"
	"testing"
)

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
		{"/run/credentials/x.service", "/run/credentials/y.service/keys.json", 0o440, false},
		{"/run/credentials/x.service", "/etc/keys.json", 0o440, false},
	} {
		t.Setenv("CREDENTIALS_DIRECTORY", tt.credentials)
		if got := Private(tt.path, tt.mode); got != tt.want {
			t.Errorf("%s, %o, with %q: %v", tt.path, tt.mode, tt.credentials, got)
		}
	}
}
