package front

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// asV1 has the newer encoder write what encoding/json does, also numbers that it has read, and
// refuse the rest: text that is not UTF-8.
var asV1 = jsonv2.JoinOptions(jsonv1.DefaultOptionsV1(), jsontext.AllowInvalidUTF8(false),
	jsonv2.WithMarshalers(jsonv2.MarshalToFunc(
		func(e *jsontext.Encoder, n json.Number) error { return e.WriteValue([]byte(n)) })))

// encodeNode is a node as arm.WriteJSON sends it. A configuration is objects within objects, for
// which encoding/json makes much that is thrown away.
func encodeNode(node api.FlexNodeConfig) ([]byte, error) {
	text, err := jsonv2.Marshal(node, asV1)
	if err != nil {
		return json.Marshal(node)
	}
	return text, nil
}

// writeNode sends a node and its ETag, the body as arm.WriteJSON does.
func writeNode(w http.ResponseWriter, status int, node api.FlexNodeConfig) {
	w.Header().Set("ETag", node.ETag)
	text, err := encodeNode(node)
	if err != nil {
		arm.WriteJSON(w, status, node)
		return
	}
	writeText(w, status, append(text, '\n'))
}

// writeNodes sends a page of nodes that are encoded already, as arm.WriteJSON sends an api.List.
func writeNodes(w http.ResponseWriter, nodes [][]byte, nextLink string) error {
	text := append([]byte(`{"value":[`), bytes.Join(nodes, []byte{','})...)
	text = append(text, ']')
	if nextLink != "" {
		link, err := json.Marshal(nextLink)
		if err != nil {
			return fmt.Errorf("internal error: %w", err)
		}
		text = append(append(text, `,"nextLink":`...), link...)
	}
	writeText(w, http.StatusOK, append(text, "}\n"...))
	return nil
}

func writeText(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client has gone: nobody is left to be told
}
