package flexnode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// maxDepth limits the nesting of a body; ours needs five levels.
const maxDepth = 32

// Decode reads a JSON body. It rejects unknown members, duplicate names, nesting beyond maxDepth
// and an empty body. Errors are of type *arm.Error.
func Decode(body []byte, into any) error { return decode(body, into, true) }

// DecodeLenient is Decode for agents, which may be newer: unknown members are ignored.
func DecodeLenient(body []byte, into any) error { return decode(body, into, false) }

func decode(body []byte, into any, strict bool) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return badBody(errors.New("it is empty"))
	}
	if err := checkShape(body); err != nil {
		return badBody(err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(into); err != nil {
		return badBody(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badBody(errors.New("there is data after the document"))
	}
	return nil
}

// DecodeOptional is Decode for bodies that may be empty.
func DecodeOptional(body []byte, into any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	return Decode(body, into)
}

func badBody(err error) error {
	return arm.Errorf(400, "InvalidRequestContent",
		"The request content was invalid and could not be deserialized: '%s'.",
		shorten(strings.TrimPrefix(err.Error(), "json: ")))
}

// shape tracks the objects and lists that checkShape is inside of.
type shape struct {
	names  []map[string]bool // of an object; nil for a list
	isName bool              // the next string is a name
}

// checkShape rejects two things that encoding/json accepts: endless nesting and duplicate names.
func checkShape(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	var s shape
	for token, err := d.Token(); !errors.Is(err, io.EOF); token, err = d.Token() {
		if err == nil {
			err = s.next(token)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *shape) next(token json.Token) error {
	if delim, ok := token.(json.Delim); ok {
		switch delim {
		case '{':
			s.names = append(s.names, map[string]bool{})
		case '[':
			s.names = append(s.names, nil)
		default:
			s.names = s.names[:len(s.names)-1]
		}
		if len(s.names) > maxDepth {
			return fmt.Errorf("it is nested deeper than %d", maxDepth)
		}
		s.isName = s.inObject()
		return nil
	}
	if name, ok := token.(string); ok && s.isName {
		known, key := s.names[len(s.names)-1], strings.ToLower(name)
		if known[key] {
			return fmt.Errorf("the name %q is given twice", name)
		}
		known[key], s.isName = true, false
		return nil
	}
	s.isName = s.inObject()
	return nil
}

func (s *shape) inObject() bool { return len(s.names) > 0 && s.names[len(s.names)-1] != nil }

// ReadPut reads the body of a PUT, which may be the answer of a GET. It returns the settings of the
// owner without the client secret, and that secret. The error is of type *arm.Error or Problems.
func ReadPut(body []byte, id string) (api.Desired, string, error) {
	var b struct {
		api.FlexNodeConfig
		// Location is ignored: `az resource create` sends one with every resource.
		Location string `json:"location"`
	}
	b.Properties.ContinuousMonitoring = true // unless it is given
	if err := Decode(body, &b); err != nil {
		return api.Desired{}, "", err
	}
	for _, m := range []struct{ member, given, want string }{
		{"id", b.ID, id}, {"name", b.Name, baseName(id)}, {"type", b.Type, api.ResourceType},
	} {
		if m.given != "" && !arm.EqualFold(m.given, m.want) {
			return api.Desired{}, "", arm.Errorf(400, "InvalidParameter", "The %s '%s' in the "+
				"request content does not match the one in the URL, '%s'.",
				m.member, shorten(m.given), shorten(m.want))
		}
	}
	desired, secret := WithoutSecret(complete(b.Properties.Desired))
	problems, state := Validate(desired), b.Properties.ProvisioningState
	states := []string{"", api.Succeeded, api.Creating, api.Updating, api.Deleting, api.Failed,
		api.Canceled} // the state in a request is ignored
	is := func(s string) bool { return strings.EqualFold(s, state) }
	problems.unless(slices.ContainsFunc(states, is), "properties.provisioningState",
		"The state is set by the provider, and '%s' is not one of its states.", shorten(state))
	return desired, secret, problems.err()
}
