package main

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// The same files make the same wheel, byte for byte, whatever other files there are.
func TestWheelIsReproducible(t *testing.T) {
	first, err := wheel(os.DirFS("."), "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{module + "/__pycache__/x.cpython-311.pyc": {Data: []byte("x")}}
	members, err := zip.NewReader(bytes.NewReader(first), int64(len(first)))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members.File {
		if data, err := os.ReadFile(m.Name); err == nil { // the others are generated
			files[m.Name] = &fstest.MapFile{Data: data, Mode: 0o600}
		}
	}
	second, err := wheel(files, "1.2.3")
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("two wheels of the same files differ: %v", err)
	}
	if other, _ := wheel(os.DirFS("."), "1.2.4"); bytes.Equal(first, other) {
		t.Error("the version is not in the wheel")
	}
}

// Every file is in RECORD, and az finds name, module and version.
func TestWheelIsComplete(t *testing.T) {
	data, err := wheel(os.DirFS("."), "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		text[f.Name] = string(content)
		if f.Mode() != 0o644 {
			t.Errorf("%s has mode %v", f.Name, f.Mode())
		}
	}
	const info = "aks_flex_node-1.2.3.dist-info/"
	for file := range text {
		if !strings.Contains(text[info+"RECORD"], file+",") {
			t.Errorf("RECORD does not know %s", file)
		}
	}
	metadata := text[info+"METADATA"]
	if !strings.Contains(metadata, "\nName: aks-flex-node\nVersion: 1.2.3\n") ||
		strings.Contains(metadata, "Requires-Dist") {
		t.Errorf("METADATA is\n%s", metadata)
	}
	for _, file := range []string{"__init__.py", "commands.py", "azext_metadata.json"} {
		if text[module+"/"+file] == "" {
			t.Errorf("the wheel has no %s", file)
		}
	}
}

func TestVersions(t *testing.T) {
	for described, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3-dirty": "1.2.3", "v1.2.3-4-gabcdef0": "1.2.3.post4",
		"abcdef0": "0.0.0+abcdef0", "abcdef0-dirty": "0.0.0+abcdef0", "dev": "0.0.0",
		"v1.2.3-dev.40": "1.2.3.dev40",
	} {
		if got := versionOf(described); got != want {
			t.Errorf("%s is version %s, want %s", described, got, want)
		}
	}
}
