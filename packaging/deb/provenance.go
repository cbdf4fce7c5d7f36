package deb

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

type object = map[string]any

// Provenance is a statement of what files were made of, as in-toto and SLSA have it
// (https://slsa.dev/spec/v1.0/provenance). It is not signed: whoever publishes it signs it, and
// says by that who has built. sources are digests of what else went in, by name.
func Provenance(r Release, files []string, sources map[string]string) ([]byte, error) {
	var subject []object
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot state the provenance of %s: %w", file, err)
		}
		subject = append(subject, object{"name": filepath.Base(file),
			"digest": object{"sha256": fmt.Sprintf("%x", sha256.Sum256(data))}})
	}
	from := []object{{"uri": "git+" + homepage, "digest": object{"gitCommit": r.Commit}}}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		from = append(from, object{"name": name, "digest": object{"sha256": sources[name]}})
	}
	text, err := json.MarshalIndent(object{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subject,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":            homepage + "/blob/main/docs/packages.md",
				"externalParameters":   object{"version": r.Version, "time": r.Time.Unix()},
				"internalParameters":   object{"go": runtime.Version()},
				"resolvedDependencies": from,
			},
			"runDetails": object{"builder": object{"id": homepage + "/blob/main/docs/packages.md"}},
		},
	}, "", "  ")
	return append(text, '\n'), err
}
