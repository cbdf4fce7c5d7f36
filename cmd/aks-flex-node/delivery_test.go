package main

import (
	"slices"
	"strings"
	"testing"
)

func TestWithoutURL(t *testing.T) {
	const line = "aks-flex-node agent -o json"
	for _, given := range []string{
		"aks-flex-node agent -o json --config-url https://secret",
		"aks-flex-node agent --config-url https://secret -o json",
		"aks-flex-node agent --config-url=https://secret -o json",
		"aks-flex-node agent --config-url=- --config-url https://secret -o json",
	} {
		if got := withoutURL(strings.Fields(given)); !slices.Equal(got, strings.Fields(line)) {
			t.Errorf("%s becomes %s", given, got)
		}
	}
}
