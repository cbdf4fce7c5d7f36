package flexnode

import (
	"bytes"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/rp/rawjson"
)

// plainShape goes over a body as callers mostly send it, of which it is quick to tell that nothing
// is wrong with its shape.
type plainShape struct {
	s *rawjson.Scanner
	// names are those in the objects that are open.
	names [][]byte
}

// What is more than this is looked at closely.
const (
	plainNames  = 32 // in one object
	plainNumber = 15 // characters
)

// isPlainShape tells that readShape would find nothing wrong with a body; false of one that it has
// to be asked of.
func isPlainShape(body []byte) bool {
	p := plainShape{s: rawjson.NewScanner(body)}
	return p.value(maxDepth) && p.s.Done()
}

// value reads a value that may be nested so deep.
func (p *plainShape) value(depth int) bool {
	switch kind := p.s.Peek(); {
	case kind == '{' && depth > 0:
		return p.object(depth - 1)
	case kind == '[' && depth > 0:
		plain := true
		p.s.Items(func() { plain = p.value(depth-1) && plain })
		return plain
	case kind == '0':
		number := p.s.Value()
		return len(number) <= plainNumber && !bytes.ContainsAny(number, "eE")
	default:
		p.s.Value()
		return kind != '{' && kind != '['
	}
}

func (p *plainShape) object(depth int) bool {
	plain, first := true, len(p.names)
	p.s.Members(func(name []byte) bool {
		others := p.names[first:]
		plain = len(others) < plainNames && isPlain(name) &&
			!slices.ContainsFunc(others, func(o []byte) bool { return bytes.EqualFold(o, name) })
		p.names = append(p.names, name)
		plain = p.value(depth) && plain
		return plain
	})
	p.names = p.names[:first]
	return plain
}
