package flexnode

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Decode reads a JSON body. It rejects unknown members, duplicate names, also members that differ
// only in case, and an empty body or null. Errors are of type *arm.Error.
func Decode(body []byte, into any) error { return decode(body, into, true) }

// DecodeLenient is Decode for agents, which may be newer: unknown members are ignored.
func DecodeLenient(body []byte, into any) error { return decode(body, into, false) }

func decode(body []byte, into any, strict bool) error {
	if isEmpty(body) {
		return badBody(errors.New("it is empty or null"))
	}
	err := jsonv2.Unmarshal(body, into, jsonv1.DefaultOptionsV1(),
		jsontext.AllowDuplicateNames(false), jsonv2.RejectUnknownMembers(strict))
	if err != nil {
		return badBody(err)
	}
	return nil
}

func isEmpty(body []byte) bool {
	text := bytes.TrimSpace(body)
	return len(text) == 0 || string(text) == "null"
}

// DecodeOptional is Decode for bodies that may be empty.
func DecodeOptional(body []byte, into any) error {
	if isEmpty(body) {
		return nil
	}
	return Decode(body, into)
}

func badBody(err error) error {
	return arm.Errorf(400, "InvalidRequestContent",
		"The request content was invalid and could not be deserialized: '%s'.",
		shorten(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "jsontext: "), "json: ")))
}

// ReadPut reads the body of a PUT, which may be the answer of a GET. It returns the settings of the
// owner without the client secret, and that secret. The error is of type *arm.Error or Problems.
func ReadPut(body []byte, id string) (Desired, string, error) {
	var b struct {
		api.FlexNodeConfig
		// Location is ignored: `az resource create` sends one with every resource.
		Location string `json:"location"`
	}
	b.Properties.ContinuousMonitoring = true // unless it is given
	if err := Decode(body, &b); err != nil {
		return Desired{}, "", err
	}
	if err := CheckIdentity(b.ID, b.Name, b.Type, id, api.ResourceType); err != nil {
		return Desired{}, "", err
	}
	desired, secret := WithoutSecret(complete(desiredOf(b.Properties.Desired)))
	problems, state := Validate(desired), b.Properties.ProvisioningState
	problems.unless(len(secret) <= maxSecret, "properties.azureAuth",
		"The client secret is longer than %d bytes.", maxSecret)
	states := []string{"", api.Succeeded, api.Creating, api.Updating, api.Deleting, api.Failed,
		api.Canceled} // the state in a request is ignored
	is := func(s string) bool { return strings.EqualFold(s, state) }
	problems.unless(slices.ContainsFunc(states, is), "properties.provisioningState",
		"The state is set by the provider, and '%s' is not one of its states.", shorten(state))
	return desired, secret, problems.err()
}

// CheckIdentity returns an error if the id, name or type in a body is not that of the resource in
// the URL, which has an id and a kind.
func CheckIdentity(givenID, name, givenType, id, kind string) error {
	for _, m := range []struct{ member, given, want string }{
		{"id", givenID, id}, {"name", name, LastOf(id)}, {"type", givenType, kind},
	} {
		if m.given != "" && !arm.EqualFold(m.given, m.want) {
			return arm.Errorf(400, "InvalidParameter", "The %s '%s' in the request content does not "+
				"match the one in the URL, '%s'.", m.member, shorten(m.given), shorten(m.want))
		}
	}
	return nil
}

const maxSecret = 1024 // the bytes of a client secret

// Problem is one problem of a request: its JSON path, and what to do.
type Problem struct{ Target, Message string }

// Problems lists all problems of a request.
type Problems []Problem

// Error lists the problems, one per line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.Target + ": " + one.Message
	}
	return strings.Join(lines, "\n")
}

// ARM returns a 400 with each problem and its path (RPC, error details); nil without any.
func (p Problems) ARM() *arm.Error {
	if len(p) == 0 {
		return nil
	}
	const code = "InvalidParameter"
	if len(p) == 1 {
		return &arm.Error{Status: 400, Code: code, Target: p[0].Target, Message: p[0].Message}
	}
	e := arm.Errorf(400, "MultipleErrorsOccurred",
		"The request has %d problems; see the details.", len(p))
	for _, one := range p {
		e.Details = append(e.Details, arm.Error{Code: code, Target: one.Target, Message: one.Message})
	}
	return e
}

// err returns the problems as an error; nil for none.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

func (p *Problems) add(target, format string, args ...any) {
	*p = append(*p, Problem{target, fmt.Sprintf(format, args...)})
}

func (p *Problems) unless(good bool, target, format string, args ...any) {
	if !good {
		p.add(target, format, args...)
	}
}

// shorten limits a text from a caller, so that it cannot fill a response or a log.
func shorten(s string) string { return Cut(s, 100) }

// Cut shortens a text to at most so many bytes and an ellipsis, and makes it valid UTF-8.
func Cut(s string, most int) string {
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
