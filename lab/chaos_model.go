package lab

import (
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// The model's operations on a node.
const (
	putOp        = "PUT"
	getOp        = "GET"
	deleteOp     = "DELETE"
	clearOp      = "CLEAR" // its cluster's registration is deleted
	regenerateOp = "REGENERATE"
	bundleOp     = "BUNDLE"
)

// step is an operation on a node.
type step struct {
	node, verb string
	value      int    // PUT
	url        bool   // PUT: asks for a URL
	credential string // BUNDLE: the URL's credential
}

// outcome holds the result of an operation.
type outcome struct {
	known      bool
	exists     bool // the node existed; BUNDLE: the URL responded
	value      int  // GET, BUNDLE
	etag       string
	credential string // PUT, REGENERATE: of the URL handed out; "" for none yet
}

// register is the model's state: a node exists with a value, a version and a credential, or does
// not.
type register struct {
	exists bool
	value  int
	// etag is the current revision's; "" if no client has seen it. early reports that it may not be
	// rendered yet: a client that waits for a URL receives the state after its wait.
	etag  string
	early bool
	// floor is below every later version, also of a node that is created again.
	floor int64
	// credential is the one whose URL responds. With doubt, it may be one that no client has received.
	credential string
	doubt      bool
}

// unseen is a credential whose URL no client has received.
const unseen = "?"

// versionOf returns the version in an ETag: 0 if the node is not rendered yet, -1 without a
// version.
func versionOf(etag string) int64 {
	parts := strings.Split(strings.Trim(etag, `"`), "-")
	if len(parts) < 2 {
		return -1
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// see reports whether an ETag is possible in this state, and returns the state with it.
func (r register) see(etag string) (bool, register) {
	version := versionOf(etag)
	switch {
	case version < 0:
		return false, r
	case version == 0: // its cluster was not reached yet
		return r.etag == "" || r.early, r
	case r.etag != "":
		r.early = false
		return r.etag == etag, r
	case version <= r.floor:
		return false, r
	}
	r.etag, r.floor = etag, version
	return true, r
}

// put applies a PUT. An equal one keeps version and URL; another one makes a later version and ends
// the URL.
func (r register) put(in step, out outcome) (bool, register) {
	if out.known && out.exists != r.exists {
		return false, r
	}
	if !r.exists || r.value != in.value {
		r = register{exists: true, value: in.value, floor: r.floor}
	}
	if in.url {
		r = r.issue(out)
	}
	if !out.known {
		return true, r
	}
	seen := r.etag != ""
	good, next := r.see(out.etag)
	next.early = next.early || in.url && !seen && next.etag != ""
	return good, next
}

// issue adds a new credential. An unused one is kept for the next request: a client that received
// no URL may be waiting for the same one as another client.
func (r register) issue(out outcome) register {
	switch {
	case out.credential != "":
		r.credential, r.doubt = out.credential, false
	case r.credential == "":
		r.credential = unseen
	default:
		r.doubt = true
	}
	return r
}

func (r register) get(out outcome) (bool, register) {
	if !out.known {
		return true, r
	}
	if out.exists != r.exists || r.exists && out.value != r.value {
		return false, r
	}
	if !r.exists {
		return true, r
	}
	return r.see(out.etag)
}

func (r register) bundle(in step, out outcome) (bool, register) {
	if !out.known {
		return true, r
	}
	if r.credential == in.credential && r.doubt {
		r.doubt = false
		if !out.exists {
			r.credential = unseen
		}
	}
	alive := r.credential == in.credential
	return out.exists == alive && (!alive || out.value == r.value), r
}

func (r register) regenerate(out outcome) (bool, register) {
	if out.known && out.exists != r.exists {
		return false, r
	}
	if r.exists {
		r = r.issue(out)
	}
	return true, r
}

// next reports whether an operation can have an outcome, and returns the state after it.
func (r register) next(in step, out outcome) (bool, register) {
	switch in.verb {
	case putOp:
		return r.put(in, out)
	case getOp:
		return r.get(out)
	case bundleOp:
		return r.bundle(in, out)
	case regenerateOp:
		return r.regenerate(out)
	}
	good := in.verb == clearOp || !out.known || out.exists == r.exists
	return good, register{floor: r.floor}
}

func chaosModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byNode := map[string][]porcupine.Operation{}
			for _, op := range history {
				byNode[op.Input.(step).node] = append(byNode[op.Input.(step).node], op)
			}
			var parts [][]porcupine.Operation
			for _, part := range byNode {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return register{} },
		Step: func(state, input, output any) (bool, any) {
			return state.(register).next(input.(step), output.(outcome))
		},
	}
}
