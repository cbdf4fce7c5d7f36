package arc

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// The key in the program is the one with the fingerprint that Microsoft publishes (RFC 9580,
// section 5.5.4.2: SHA-1 of 0x99, the length, and the packet of the public key).
func TestKeyHasTheFingerprint(t *testing.T) {
	const fingerprint = "BC528686B50D79E339D3721CEB3E94ADBE1229CF"
	_, armor, _ := strings.Cut(Key, "\n\n")
	armor, _, found := strings.Cut(armor, "\n=")
	packet, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(armor, "\n", ""))
	if err != nil || !found || packet[0] != 0x99 {
		t.Fatalf("the key cannot be read: %v", err)
	}
	end := 3 + (int(packet[1])<<8 | int(packet[2]))
	if got := fmt.Sprintf("%X", sha1.Sum(packet[:end])); got != fingerprint {
		t.Errorf("the key's fingerprint is %s", got)
	}
	if n := strings.Count(Key, "BEGIN PGP PUBLIC KEY BLOCK"); n != 1 {
		t.Errorf("there are %d keys", n)
	}
}

// An old package is refused, though its repository is truly signed.
func TestLeastVersion(t *testing.T) {
	for file, fine := range map[string]bool{
		"/d/azcmagent_1.65.03400.1_amd64.deb": true, "azcmagent_1.65_all.deb": true,
		"azcmagent_1.100.0_amd64.deb": true, "azcmagent_2.0.0_amd64.deb": true,
		"azcmagent_1.64.03399.9_amd64.deb": false, "azcmagent_1.9.0_amd64.deb": false,
		"azcmagent_0.99_amd64.deb": false, "azcmagent_x_amd64.deb": false, "azcmagent.deb": false,
	} {
		if err := checkVersion(file); (err == nil) != fine {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestRepository(t *testing.T) {
	c := config.Config{Azure: config.Azure{Arc: &config.Arc{}}}
	for _, d := range []Download{{ID: "ubuntu", Version: "24.10"}, {ID: "other", Version: "12"}} {
		if list, err := d.repositories(c); err == nil {
			t.Errorf("%s %s has %v", d.ID, d.Version, list)
		}
	}
	list, err := Download{ID: "ubuntu", Version: "24.04"}.repositories(c)
	if err != nil {
		t.Fatal(err)
	}
	r := list[0]
	files := r.Files("/d")
	const source = "Types: deb\nURIs: https://packages.microsoft.com/ubuntu/24.04/prod\n" +
		"Suites: noble\nComponents: main\nSigned-By: /d/key.asc\n"
	if files["repository.sources"] != source || files["key.asc"] != Key {
		t.Errorf("files %q", files)
	}
	for _, want := range []string{
		`Dir::Etc::SourceList "/d/repository.sources";`, `Dir::Etc "/d/none";`,
		`Acquire::https::Proxy "DIRECT";`,
	} {
		if !strings.Contains(files["apt.conf"], want+"\n") {
			t.Errorf("apt is not told %s:\n%s", want, files["apt.conf"])
		}
	}
	r.Proxy = "http://user:secret@proxy:3128"
	if conf := r.Files("/d")["apt.conf"]; !strings.Contains(conf, `"http://user:secret@proxy:3128"`) {
		t.Errorf("apt is not told the proxy:\n%s", conf)
	}
	update, download := r.Commands("/d")
	if strings.Join(update, " ") != "env --chdir=/d LC_ALL=C APT_CONFIG=/d/apt.conf apt-get update "+
		"--quiet=2" || download[len(download)-1] != Package {
		t.Errorf("commands %q, %q", update, download)
	}
}
