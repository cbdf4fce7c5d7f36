package front

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"

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

// encodeNode appends a node to a buffer, as arm.WriteJSON sends it. A configuration is objects
// within objects, for which encoding/json makes much that is thrown away.
func encodeNode(into *bytes.Buffer, node api.FlexNodeConfig) error {
	before := into.Len()
	if jsonv2.MarshalWrite(into, node, asV1) == nil {
		return nil
	}
	into.Truncate(before)
	text, err := json.Marshal(node)
	into.Write(text)
	return err
}

// texts has buffers for answers.
var texts = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// writeNode sends a node and its ETag, the body as arm.WriteJSON does.
func writeNode(w http.ResponseWriter, status int, node api.FlexNodeConfig) {
	w.Header().Set("ETag", node.ETag)
	text := texts.Get().(*bytes.Buffer)
	defer texts.Put(text)
	text.Reset()
	if err := encodeNode(text, node); err != nil {
		arm.WriteJSON(w, status, node)
		return
	}
	writeText(w, status, text)
}

// writePage sends a page of a list, of which the items are encoded already, with commas between
// them, as arm.WriteJSON sends an api.List.
func writePage(w http.ResponseWriter, items *bytes.Buffer, nextLink string) error {
	text := new(bytes.Buffer)
	text.Grow(items.Len() + len(nextLink) + len(`{"value":[],"nextLink":""}`) + 1)
	text.WriteString(`{"value":[`)
	text.Write(items.Bytes())
	text.WriteByte(']')
	if nextLink != "" {
		link, err := json.Marshal(nextLink)
		if err != nil {
			return fmt.Errorf("internal error: %w", err)
		}
		text.WriteString(`,"nextLink":`)
		text.Write(link)
	}
	text.WriteByte('}')
	writeText(w, http.StatusOK, text)
	return nil
}

// writeText sends JSON, and a line feed after it.
func writeText(w http.ResponseWriter, status int, text *bytes.Buffer) {
	text.WriteByte('\n')
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(text.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // the client has gone: nobody is left to be told
}
