package config

import (
	"strconv"
	"strings"
)

// member is the path of a member of the object at path: a.b for plain names, a["b.c"] for others.
func member(path, name string) string {
	switch {
	case !plain(name):
		return path + "[" + show(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// plain tells whether a name needs no quotes in a path: it has letters, digits and "_", and no
// digit first.
func plain(name string) bool {
	special := func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	return name != "" && strings.IndexFunc(name, special) < 0 && (name[0] < '0' || name[0] > '9')
}

// item is the path of an item of the list at path.
func item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
