package flexnode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// Grants holds the secrets of a node; a configuration without grants has none.
type Grants struct {
	ClientSecret string
	Token        string // bootstrap token, id.secret
}

// Config returns the agent's configuration of a revision: its own layer over facts over defaults,
// and the given secrets. It shares objects with the layers and must not be changed.
func Config(r Revision, defaults, facts *Layer, g Grants) (map[string]any, error) {
	own, err := readObject(r.Own)
	if err != nil {
		return nil, fmt.Errorf("cannot read configuration %d: %w", r.Version, err)
	}
	return layered(own, defaults, facts, g), nil
}

// layered returns the merged configuration of the layers, with the given secrets.
func layered(own object, defaults, facts *Layer, g Grants) object {
	config := overlay("", base(defaults, facts), own)
	grant(config, g)
	return config
}

// bases caches merged defaults and facts, by their ids: the nodes of a cluster share them.
var bases, _ = lru.New[[2]string, object](256) // an error only of a size below 1

// base returns merged defaults and facts, which must not be changed.
func base(defaults, facts *Layer) object {
	if defaults == nil || facts == nil {
		return overlay("", defaults.settings(), facts.settings())
	}
	ids := [2]string{defaults.ID, facts.ID}
	merged, ok := bases.Get(ids)
	if !ok {
		merged = overlay("", defaults.object, facts.object)
		bases.Add(ids, merged)
	}
	return merged
}

// Bundle returns the bundle that a machine receives.
func Bundle(whole map[string]any, from api.BundleResource) api.Bundle {
	return api.Bundle{SchemaVersion: config.SchemaVersion, Config: whole, Resource: from}
}

// grant adds the secrets to a configuration. It copies the objects that layers share.
func grant(config object, g Grants) {
	azure, _ := config["azure"].(object)
	azure = copied(azure)
	config["azure"] = azure
	if sp, ok := azure["servicePrincipal"].(object); ok && g.ClientSecret != "" {
		sp = maps.Clone(sp)
		sp["clientSecret"] = g.ClientSecret
		azure["servicePrincipal"] = sp
	}
	if _, joins := azure["bootstrapToken"]; joins && g.Token != "" {
		azure["bootstrapToken"] = object{"token": g.Token}
	}
}

// Content returns the bytes that are signed: a configuration without secrets.
func Content(whole map[string]any) []byte { return appendValue(make([]byte, 0, 4<<10), whole) }

// appendValue appends a decoded value as encode encodes it, in a quarter of the time.
func appendValue(text []byte, value any) []byte {
	switch v := value.(type) {
	case object:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		text = append(text, '{')
		for i, name := range names {
			if i > 0 {
				text = append(text, ',')
			}
			text = append(appendText(text, name), ':')
			text = appendValue(text, v[name])
		}
		return append(text, '}')
	case []any:
		text = append(text, '[')
		for i, item := range v {
			if i > 0 {
				text = append(text, ',')
			}
			text = appendValue(text, item)
		}
		return append(text, ']')
	case string:
		return appendText(text, v)
	case json.Number:
		return append(text, v...)
	}
	return append(text, encode(value)...)
}

// appendText appends a string. encode escapes what encoding/json escapes.
func appendText(text []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return append(text, encode(s)...)
		}
	}
	return append(append(append(text, '"'), s...), '"')
}

// readObject reads a stored object; nil for an empty text.
func readObject(text []byte) (object, error) {
	if len(text) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
		return nil, err
	}
	if _, err := d.Token(); o == nil || !errors.Is(err, io.EOF) {
		return nil, errors.New("not a JSON object")
	}
	return o, nil
}

// copied returns a copy of an object; an empty one for nil.
func copied(o object) object {
	if o == nil {
		return object{}
	}
	return maps.Clone(o)
}

// overlay merges over into under, also objects that both have, except at replacedWhole.
func overlay(path string, under, over object) object {
	result := copied(under)
	for name, value := range over {
		below, ok := result[name].(object)
		if above, both := value.(object); ok && both {
			if at := path + "." + name; !slices.Contains(replacedWhole, at) {
				value = overlay(at, below, above)
			}
		}
		result[name] = value
	}
	return result
}

// replacedWhole lists the maps for which the node gets only its owner's entries.
var replacedWhole = []string{
	".node.labels", ".node.kubelet.kubeReserved", ".node.kubelet.evictionHard",
}

// objectOf returns a value as the object that its JSON decodes to; nil for a nil map.
func objectOf(value any) object {
	o, _ := readObject(encode(value))
	return o
}

// in returns the value at the end of a path of names, nil if it is not there.
func in(o object, path ...string) any {
	last := len(path) - 1
	for _, name := range path[:last] {
		o, _ = o[name].(object)
	}
	return o[path[last]]
}

// textIn returns the text at the end of a path, "" if it is not there.
func textIn(o object, path ...string) string {
	text, _ := in(o, path...).(string)
	return text
}

// encode returns a value as encoding/json writes it: compact, with sorted names of maps.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil { // strings, numbers, lists and maps of them encode
		panic("internal error: " + err.Error())
	}
	return text
}
