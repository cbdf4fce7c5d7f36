package kube

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ParseTaint parses a taint as the configuration and kubectl write it: key=value:Effect or
// key:Effect.
func ParseTaint(text string) (corev1.Taint, error) {
	pair, effect, ok := strings.Cut(text, ":")
	key, value, _ := strings.Cut(pair, "=")
	if !ok || key == "" || effect == "" {
		return corev1.Taint{}, fmt.Errorf("cannot read the taint %q: it is not key=value:Effect", text)
	}
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}
