package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
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

// member is a file of the wheel.
type member struct {
	name string
	data []byte
}

// wheel packs the module of a directory.
func wheel(dir fs.FS, version string) ([]byte, error) {
	members, err := sources(dir)
	if err != nil {
		return nil, err
	}
	info := distribution + "-" + version + ".dist-info/"
	members = append(members,
		member{info + "METADATA", fmt.Appendf(nil, about, name, version)},
		member{info + "WHEEL", []byte(form)},
		member{info + "top_level.txt", []byte(module + "\n")})
	var record strings.Builder
	for _, m := range members {
		sum := sha256.Sum256(m.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", m.name,
			base64.RawURLEncoding.EncodeToString(sum[:]), len(m.data))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	return pack(append(members, member{info + "RECORD", []byte(record.String())}))
}

// sources are the files of the module, without what Python has made of them.
func sources(dir fs.FS) (members []member, err error) {
	err = fs.WalkDir(dir, module, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if extension := path.Ext(file); extension != ".py" && extension != ".json" {
			return nil
		}
		data, err := fs.ReadFile(dir, file)
		members = append(members, member{file, data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the extension: %w", err)
	}
	return members, nil
}

func pack(members []member) ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, m := range members {
		header := &zip.FileHeader{Name: m.name, Method: zip.Store, Modified: date}
		header.SetMode(0o644)
		w, err := archive.CreateHeader(header)
		if err != nil {
			return nil, fmt.Errorf("cannot pack %s: %w", m.name, err)
		}
		if _, err := w.Write(m.data); err != nil {
			return nil, fmt.Errorf("cannot pack %s: %w", m.name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("cannot pack the wheel: %w", err)
	}
	return out.Bytes(), nil
}
