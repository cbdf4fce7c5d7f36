package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// unknown says that an object has no such member, and which one may be meant: one with a similar
// name in the same object, else one of that name elsewhere.
func unknown(path, name string, known []field) string {
	var names []string
	for _, f := range known {
		names = append(names, f.name)
	}
	for _, alias := range aliasNames(path) {
		if !slices.Contains(names, alias) {
			names = append(names, alias)
		}
	}
	if best := nearest(name, names); best != "" {
		return fmt.Sprintf("is not known: is %s meant?", member(path, best))
	}
	if elsewhere := find(name); len(elsewhere) > 0 {
		return fmt.Sprintf("is not known here: is %s meant?", strings.Join(elsewhere, " or "))
	}
	return "is not known: known here are " + strings.Join(names, ", ")
}

// nearest picks the name that differs least from a misspelt one, or "" when none is near.
func nearest(name string, names []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, candidate := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance is the number of letters to insert, remove or replace that make b of a (Levenshtein).
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// find returns the paths of the settings of that name anywhere in the configuration.
func find(name string) []string {
	return slices.DeleteFunc(settings(reflect.TypeFor[Config](), ""), func(path string) bool {
		_, last := split(path)
		return !strings.EqualFold(last, name)
	})
}

// settings lists the path of every object and setting below a type.
func settings(t reflect.Type, path string) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var list []string
	for i, f := range fields(t) {
		at := member(path, f.name)
		list = append(append(list, at), settings(t.Field(i).Type, at)...)
	}
	return list
}

// split cuts a plain path into the path of the object and the name in it.
func split(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}
