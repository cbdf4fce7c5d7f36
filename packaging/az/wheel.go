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

// The module of the extension, and its name in the wheel (PEP 491) and to az.
const (
	module       = "azext_aks_flex_node"
	distribution = "aks_flex_node"
	name         = "aks-flex-node"
)

// A wheel is a zip: its dates begin in 1980. The same files make the same wheel: nothing is
// compressed, which one release of Go does differently from another.
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

// writer packs a wheel, and notes each file of it for the file RECORD.
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

// wheel packs the module of a directory, without what Python has made of it.
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
