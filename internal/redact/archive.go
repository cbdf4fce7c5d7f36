package redact

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The max size of one file and of all files, uncompressed.
const MaxFile, MaxAll = 1 << 20, 32 << 20

// Manifest lists the contents of an archive, and what was left out.
type Manifest struct {
	Created  time.Time      `json:"created"`
	Version  string         `json:"version"`
	Files    []File         `json:"files"`
	LeftOut  []LeftOut      `json:"leftOut"`
	Redacted map[string]int `json:"redacted"` // the numbers of redactions, by kind
}

// File is one file of an archive.
type File struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	// CutFrom is the original size of a file of which only the end is kept; 0 for a whole one.
	CutFrom int `json:"cutFrom,omitempty"`
}

// LeftOut names a part that is not in an archive.
type LeftOut struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Archive is an archive being written. It redacts everything that is added.
type Archive struct {
	redactor *Redactor
	zip      *gzip.Writer
	tar      *tar.Writer
	manifest Manifest
	size     int
	err      error // the first write error, after which nothing is written
}

// NewArchive starts an archive.
func NewArchive(out io.Writer, r *Redactor, version string, now time.Time) *Archive {
	zip := gzip.NewWriter(out)
	return &Archive{redactor: r, zip: zip, tar: tar.NewWriter(zip),
		manifest: Manifest{Created: now.UTC().Truncate(time.Second), Version: version,
			Files: []File{}, LeftOut: []LeftOut{}}}
}

// Add adds a text. Of a long text it keeps only the end, from the start of a line.
func (a *Archive) Add(name, text string) {
	kept := tail(withoutHalfKey(a.redactor.File(name, text)), MaxFile)
	if a.size+len(kept) > MaxAll {
		a.Omit(name, fmt.Errorf("the archive would be larger than %d MiB", MaxAll>>20))
		return
	}
	f := File{Name: name, Bytes: len(kept)}
	if len(text) > MaxFile {
		f.CutFrom = len(text)
	}
	a.size += len(kept)
	a.manifest.Files = append(a.manifest.Files, f)
	a.write(name, kept)
}

// Value adds a value as JSON.
func (a *Archive) Value(name string, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		a.Omit(name, err)
		return
	}
	a.Add(name, string(text)+"\n")
}

// Omit records a part that is left out, and the reason.
func (a *Archive) Omit(name string, why error) {
	a.manifest.LeftOut = append(a.manifest.LeftOut,
		LeftOut{Name: name, Why: a.redactor.Redact(why.Error())})
}

// Close adds the manifest and ends the archive. It returns the first write error.
func (a *Archive) Close() (Manifest, error) {
	a.manifest.Redacted = a.redactor.counts
	slices.SortStableFunc(a.manifest.LeftOut, func(x, y LeftOut) int {
		return strings.Compare(x.Name, y.Name)
	})
	text, _ := json.MarshalIndent(a.manifest, "", "  ") // texts and numbers can be encoded
	a.write("manifest.json", string(text)+"\n")
	return a.manifest, errors.Join(a.err, a.tar.Close(), a.zip.Close())
}

func (a *Archive) write(name, text string) {
	if a.err != nil {
		return
	}
	err := a.tar.WriteHeader(&tar.Header{Name: "aks-flex-node-support/" + name, Mode: 0o600,
		Size: int64(len(text)), ModTime: a.manifest.Created, Typeflag: tar.TypeReg})
	if err == nil {
		_, err = io.WriteString(a.tar, text)
	}
	if err != nil {
		a.err = fmt.Errorf("cannot write %s: %w", name, err)
	}
}

// withoutHalfKey drops the rest of a private key whose beginning is cut off.
func withoutHalfKey(text string) string {
	end := endOfKey.FindStringIndex(text)
	if end == nil || strings.Contains(text[:end[0]], "-----BEGIN") {
		return text
	}
	return text[end[1]:]
}

var endOfKey = regexp.MustCompile(`-----END [A-Z0-9 ]*PRIVATE KEY-----`)

// tail returns the end of a text, from the start of a line, so that no secret is cut.
func tail(text string, most int) string {
	if len(text) <= most {
		return text
	}
	_, end, _ := strings.Cut(text[len(text)-most:], "\n")
	return end
}
