package flexnode

import "strings"

// Keys of rows are in lower case: "<subscription>/<group>/<cluster>" for a cluster, and below that
// one part more for its nodes, credentials and whatever else is its own.

// ClusterOf is the key of the cluster of a row: the first three parts of its key.
func ClusterOf(key string) string {
	at := 0
	for range 3 {
		next := strings.IndexByte(key[at:], '/')
		if next < 0 {
			return key
		}
		at += next + 1
	}
	return key[:at-1]
}

// LastOf is the last part of a key, such as the name of a node.
func LastOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }
