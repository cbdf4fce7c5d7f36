package deb

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

type object = map[string]any

// Provenance returns an in-toto statement with SLSA provenance
// (https://slsa.dev/spec/v1.0/provenance) of files. It is not signed: the publisher's signature
// says who built them. sources are other inputs, relative to a directory.
func Provenance(r Release, files []string, dir string, sources ...string) ([]byte, error) {
	var subject []object
	from := []object{{"uri": "git+" + homepage, "digest": object{"gitCommit": r.Commit}}}
	state := func(list *[]object, name, file string) error {
		data, err := os.ReadFile(file)
		*list = append(*list, object{"name": name,
			"digest": object{"sha256": fmt.Sprintf("%x", sha256.Sum256(data))}})
		return err
	}
	var err error
	for _, file := range files {
		err = errors.Join(err, state(&subject, filepath.Base(file), file))
	}
	for _, name := range sources {
		err = errors.Join(err, state(&from, name, filepath.Join(dir, name)))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot state what the packages were made of: %w", err)
	}
	text, err := json.MarshalIndent(object{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subject,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":            homepage + "/blob/main/docs/how-to/release.md",
				"externalParameters":   object{"version": r.Version, "time": r.Time.Unix()},
				"internalParameters":   object{"go": runtime.Version()},
				"resolvedDependencies": from,
			},
			"runDetails": object{
				"builder": object{"id": homepage + "/blob/main/docs/how-to/release.md"}},
		},
	}, "", "  ")
	return append(text, '\n'), err
}
