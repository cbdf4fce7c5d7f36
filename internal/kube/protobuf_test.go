package kube

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// An answer in protobuf is read; one that was cut short or is none is an error.
func TestAnswersInProtobuf(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	whole, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "edge-1", ResourceVersion: "41"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{
		"whole": whole, "cut": whole[:len(whole)-3], "JSON": []byte(`{"kind":"Node"}`), "empty": nil,
	} {
		c := inMemory(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			_, _ = w.Write(body)
		})
		node, err := c.Node(t.Context(), "edge-1")
		if good := err == nil && node.Name == "edge-1"; good != (name == "whole") {
			t.Errorf("%s: %q, %v", name, node.Name, err)
		}
		if name != "whole" && err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
