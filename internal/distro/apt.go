package distro

import (
	"cmp"
	"fmt"
	"slices"
)

// Source is a package in a repository, which apt fetches and verifies (sources.list(5)).
type Source struct {
	Package, URL, Suite string
	Key                 string // the armored key that must have signed it
	Proxy               string // the URL of its proxy, "" for none
}

// EmptyDir is a directory inside that of a download, which must exist and be empty.
const EmptyDir = "none"

// The files in the directory of a download.
const keyFile, sourceFile, confFile = "key.asc", "repository.sources", "apt.conf"

// Files returns the files that apt needs in a directory to fetch the package from this repository
// only. apt then neither reads nor changes its state for the machine's own repositories.
func (s Source) Files(dir string) map[string]string {
	source := fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s/%s\n",
		s.URL, s.Suite, dir, keyFile)
	none, proxy, conf := dir+"/"+EmptyDir, cmp.Or(s.Proxy, "DIRECT"), ""
	for _, set := range [][2]string{
		{"Dir::Etc", none}, {"Dir::Etc::Parts", none}, {"Dir::Etc::PreferencesParts", none},
		{"Dir::Etc::SourceList", dir + "/" + sourceFile},
		{"Dir::State", dir}, {"Dir::State::Status", dpkg().Database}, {"Dir::Cache", dir},
		{"APT::Sandbox::User", "root"}, // no one else can read the directory
		{"APT::Update::Error-Mode", "any"}, {"Acquire::Languages", "none"}, {"Acquire::Retries", "3"},
		{"Acquire::http::Proxy", proxy}, {"Acquire::https::Proxy", proxy},
	} {
		conf += fmt.Sprintf("%s %q;\n", set[0], set[1])
	}
	return map[string]string{keyFile: s.Key, sourceFile: source, confFile: conf}
}

// Commands returns the commands that fetch and verify the package in a directory with these files.
func (s Source) Commands(dir string) (update, download []string) {
	apt := []string{"env", "--chdir=" + dir, "LC_ALL=C",
		"APT_CONFIG=" + dir + "/" + confFile, "apt-get"}
	return slices.Concat(apt, []string{"update", "--quiet=2"}),
		slices.Concat(apt, []string{"download", "--quiet=2", s.Package})
}
