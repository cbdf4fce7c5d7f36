package arc

import (
	"cmp"
	_ "embed" // the key
	"fmt"
	"path"
	"slices"
	"strings"
)

// Package is the Arc agent's package, in the distribution's words and everywhere.
const Package = "azcmagent"

// leastMajor and leastMinor are the oldest version of the package that is installed from a repository: older ones let an
// attacker on an adjacent network become root (CVE-2026-47632 of July 2026, fixed in 1.65). A signed
// old index must not bring one back.
const leastMajor, leastMinor = 1, 65

// checkVersion refuses a package that is too old by the name that apt gives its file.
func checkVersion(file string) error {
	var major, minor int
	_, version, _ := strings.Cut(path.Base(file), "_")
	if n, err := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 {
		return fmt.Errorf("cannot read the version of %s: %w", path.Base(file), err)
	}
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return fmt.Errorf("%s is older than %d.%d, which closes CVE-2026-47632", path.Base(file),
			leastMajor, leastMinor)
	}
	return nil
}

// Key is the key with which Microsoft signs its package repositories
// (packages.microsoft.com/keys/microsoft.asc; "Linux package repository for Microsoft products").
//
//go:embed microsoft.asc
var Key string

// upstream is where Microsoft serves the package repositories of all distributions.
const upstream = "https://packages.microsoft.com/"

// repositories have the Arc agent, by ID and VERSION_ID of os-release(5).
var repositories = map[string]Repository{
	"ubuntu 22.04": {URL: upstream + "ubuntu/22.04/prod", Suite: "jammy"},
	"ubuntu 24.04": {URL: upstream + "ubuntu/24.04/prod", Suite: "noble"},
	"debian 12":    {URL: upstream + "debian/12/prod", Suite: "bookworm"},
}

// Repository is an APT repository that has the Arc agent's package.
type Repository struct {
	URL, Suite string
	// Key is the armored key that must have signed it.
	Key string
	// Proxy is the URL of the proxy that leads there, "" for none.
	Proxy string
}

// The files in the directory of a download.
const (
	keyFile    = "key.asc"
	sourceFile = Package + ".sources"
	// AptConfig is the configuration of apt, for its environment.
	AptConfig = "apt.conf"
	// EmptyDir has nothing of the machine's own configuration in it.
	EmptyDir = "none"
)

// Files are the files that apt needs in a directory to fetch the package from this repository, and
// from no other, without reading or changing what apt knows of the machine's own repositories.
func (r Repository) Files(dir string) map[string]string {
	source := fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s/%s\n",
		r.URL, r.Suite, dir, keyFile)
	settings := [][2]string{
		{"Dir::Etc", dir + "/" + EmptyDir},
		{"Dir::Etc::Parts", dir + "/" + EmptyDir},
		{"Dir::Etc::PreferencesParts", dir + "/" + EmptyDir},
		{"Dir::Etc::SourceList", dir + "/" + sourceFile},
		{"Dir::State", dir},
		{"Dir::State::Status", "/var/lib/dpkg/status"},
		{"Dir::Cache", dir},
		{"APT::Sandbox::User", "root"}, // no one else can read the directory
		{"APT::Update::Error-Mode", "any"},
		{"Acquire::Languages", "none"},
		{"Acquire::Retries", "3"},
		{"Acquire::http::Proxy", cmp.Or(r.Proxy, "DIRECT")},
		{"Acquire::https::Proxy", cmp.Or(r.Proxy, "DIRECT")},
	}
	var conf strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&conf, "%s %q;\n", s[0], s[1])
	}
	return map[string]string{keyFile: r.Key, sourceFile: source, AptConfig: conf.String()}
}

// Commands are the programs that fetch the package into a directory that has the files: each proves
// what it fetches, by the signature and the digests below it.
func Commands(dir string) (update, download []string) {
	environment := []string{"env", "--chdir=" + dir, "LC_ALL=C", "APT_CONFIG=" + dir + "/" + AptConfig}
	return slices.Concat(environment, []string{"apt-get", "update", "--quiet=2"}),
		slices.Concat(environment, []string{"apt-get", "download", "--quiet=2", Package})
}
