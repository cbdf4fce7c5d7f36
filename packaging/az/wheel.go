package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"
)

// The extension's Python module, its name in the wheel (PEP 491) and its name in az.
const (
	module       = "azext_aks_flex_node"
	distribution = "aks_flex_node"
	name         = "aks-flex-node"
)

// date is the date of every file: the first that a zip, and so a wheel, can have. The same files
// make the same wheel; nothing is compressed, because releases of Go compress differently.
var date = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)

const about = `Metadata-Version: 2.1
Name: %s
Version: %s
Summary: Machines anywhere as nodes of an AKS cluster
Home-page: https://github.com/Azure/AKSFlexNode
License: MIT
`

const form = `Wheel-Version: 1.0
Generator: aks-flex-node
Root-Is-Purelib: true
Tag: py3-none-any
`

// writer writes a wheel and collects the entries of its RECORD file.
type writer struct {
	*zip.Writer
	record strings.Builder
}

func (w *writer) add(name, text string) error {
	sum := sha256.Sum256([]byte(text))
	fmt.Fprintf(&w.record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]),
		len(text))
	header := &zip.FileHeader{Name: name, Method: zip.Store, Modified: date}
	header.SetMode(0o644)
	file, err := w.CreateHeader(header)
	if err == nil {
		_, err = io.WriteString(file, text)
	}
	return err
}

// wheel packs the module in a directory, without Python's caches.
func wheel(dir fs.FS, version string) ([]byte, error) {
	var out bytes.Buffer
	w := &writer{Writer: zip.NewWriter(&out)}
	err := fs.WalkDir(dir, module, func(file string, _ fs.DirEntry, err error) error {
		if extension := path.Ext(file); err != nil || extension != ".py" && extension != ".json" {
			return err
		}
		text, err := fs.ReadFile(dir, file)
		return errors.Join(err, w.add(file, string(text)))
	})
	info := distribution + "-" + version + ".dist-info/"
	err = errors.Join(err, w.add(info+"METADATA", fmt.Sprintf(about, name, version)),
		w.add(info+"WHEEL", form), w.add(info+"top_level.txt", module+"\n"))
	fmt.Fprintf(&w.record, "%sRECORD,,\n", info)
	if err = errors.Join(err, w.add(info+"RECORD", w.record.String()), w.Close()); err != nil {
		return nil, fmt.Errorf("cannot make the wheel: %w", err)
	}
	return out.Bytes(), nil
}
