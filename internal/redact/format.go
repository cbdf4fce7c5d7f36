package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// File returns the text of a file without secrets. Its name determines the format: a setting that
// is named like a secret loses its whole value. TOML loses its comments, YAML becomes JSON. If the
// text has another format, only the names of its settings remain.
func (r *Redactor) File(name, text string) string {
	switch path.Ext(name) {
	case ".json", ".conflist":
		return r.structured(text, readJSON, writeJSON, "")
	case ".yaml", ".yml":
		return r.structured(text, readYAML, writeJSON, "---\n")
	case ".toml":
		return r.structured(text, readTOML, toml.Marshal, "")
	case ".env":
		r.counted("environment")
		return r.Redact(variable.ReplaceAllString(text, "${1}"+Redacted))
	case ".conf": // YAML or JSON of kubelet and CNI; neither for systemd and sysctl
		if docs, err := readYAML(text); err == nil && !slices.ContainsFunc(docs, isText) {
			return r.structured(text, readYAML, writeJSON, "---\n")
		}
	}
	if base := path.Base(name); base == "fstab" || base == "mounts" {
		return r.mounts(text)
	}
	return r.Redact(text)
}

var (
	variable  = regexp.MustCompile(`(?m)^(\s*(?:export\s+)?[A-Za-z_][A-Za-z0-9_]*=).*$`)
	separator = regexp.MustCompile(`(?m)^---(?:\s.*)?$`)
	// setting matches a name with a value: text that ends with = may be the last line of a key.
	setting = regexp.MustCompile(`(?m)^([ \t]*"?[\w.-]+"?[ \t]*[:=])[ \t]*[^=\s]`)
)

func isText(doc any) bool {
	_, is := doc.(string)
	return is
}

func (r *Redactor) structured(text string, read func(string) ([]any, error),
	write func(any) ([]byte, error), between string,
) string {
	docs, err := read(text)
	var all []string
	for _, doc := range docs {
		clean, failed := write(r.values(doc, false))
		all, err = append(all, string(clean)), errors.Join(err, failed)
	}
	if err != nil {
		r.counted("file of another format")
		var left strings.Builder
		for _, found := range setting.FindAllStringSubmatch(text, -1) {
			left.WriteString(found[1] + " " + Redacted + "\n")
		}
		return left.String()
	}
	return strings.Join(all, between)
}

func readJSON(text string) (docs []any, err error) {
	in := json.NewDecoder(strings.NewReader(text))
	in.UseNumber()
	for {
		var doc any
		if err := in.Decode(&doc); errors.Is(err, io.EOF) {
			return docs, nil
		} else if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
}

func writeJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	to := json.NewEncoder(&out)
	to.SetEscapeHTML(false)
	to.SetIndent("", "  ")
	err := to.Encode(v)
	return out.Bytes(), err
}

func readYAML(text string) (docs []any, err error) {
	for _, part := range separator.Split(text, -1) {
		var doc any
		if err := yaml.Unmarshal([]byte(part), &doc); err != nil {
			return nil, err
		}
		if doc != nil {
			docs = append(docs, doc)
		}
	}
	return docs, nil
}

func readTOML(text string) ([]any, error) {
	doc := map[string]any{}
	_, err := toml.Decode(text, &doc)
	return []any{doc}, err
}

func (r *Redactor) counted(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(kind, 1)
}

// values returns a document without secrets: members named like secrets lose all their values.
func (r *Redactor) values(v any, secret bool) any {
	switch v := v.(type) {
	case map[string]any:
		clean := make(map[string]any, len(v))
		_, pair := v["name"].(string) // a variable of a container's environment
		for name, member := range v {
			// kubelet's authorization is a table of settings.
			_, table := member.(map[string]any)
			named := secretName.MatchString(name) && !(table && name == "authorization")
			clean[r.Redact(name)] = r.values(member, secret || named || pair && name == "value")
		}
		return clean
	case []any, []map[string]any: // the latter is TOML's
		list := reflect.ValueOf(v)
		clean := make([]any, list.Len())
		for i := range clean {
			clean[i] = r.values(list.Index(i).Interface(), secret)
		}
		return clean
	case nil, bool:
		return v
	}
	if text, is := v.(string); is && (!secret || text == "") {
		return r.Redact(text)
	}
	if secret {
		r.counted(named)
		return Redacted
	}
	return v
}

// mounts redacts a table of file systems: credentials in sources, and options not known as plain.
func (r *Redactor) mounts(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || strings.HasPrefix(fields[0], "#") {
			continue // a comment may be a line of former days
		}
		fields[0] = userOfSource.ReplaceAllString(fields[0], Redacted+"@")
		options := strings.Split(fields[3], ",")
		for i, option := range options {
			if name, _, _ := strings.Cut(option, "="); !plainOption.MatchString(name) {
				options[i] = Redacted
				r.counted("mount option")
			}
		}
		fields[3] = strings.Join(options, ",")
		lines = append(lines, r.Redact(strings.Join(fields, " "))+"\n")
	}
	return strings.Join(lines, "")
}

var userOfSource = regexp.MustCompile(`^\S*:\S*@`)

// plainOption matches options without secrets (mount(8), systemd.mount(5), Linux' filesystems).
var plainOption = regexp.MustCompile(`^(?:defaults|r[ow]|(?:no)?(?:auto|suid|dev|exec|user|atime|` +
	`diratime|relatime|strictatime|lazytime|discard|quota|barrier|ac|lock|fail|hard|intr|swap)|` +
	`users|group|owner|a?sync|dirsync|remount|r?(?:bind|shared|private|slave|unbindable)|_netdev|` +
	`x-systemd\.[a-z-]+|[ugf]id|gid|mode|[ufd]mask|size|nr_(?:blocks|inodes)|inode(?:32|64)|huge|` +
	`errors|data|commit|stripe|journal_[a-z_]+|usrquota|grpquota|prjquota|attr2|logb(?:ufs|size)|` +
	`s(?:unit|width)|subvol(?:id)?|compress(?:-force)?|space_cache|ssd|hard|soft|vers|nfsvers|proto|` +
	`port|(?:client)?addr|sec|[rw]size|namlen|timeo|retrans|local_lock|lookupcache|(?:lower|upper|` +
	`work)dir|index|metacopy|xino|uuid|volatile|seclabel|iocharset|codepage|shortname|utf8|flush|` +
	`pagesize|ptmxmode|hidepid|subset|pgrp|timeout|(?:min|max)proto|direct|pipe_ino|name|xattr|` +
	`release_agent|nsdelegate|memory_[a-z_]+|cpu(?:set|acct)?|blkio|memory|devices|freezer|net_cls|` +
	`net_prio|perf_event|hugetlb|pids|rdma|misc|pri|loop|offset)$`)
