package template

import (
	"fmt"
	"strconv"
	"strings"
)

// expression is a template expression: a literal, a function call, or a member of an expression.
type expression interface {
	eval(*scope) (any, error)
	// calls visits every function call in it.
	calls(visit func(call) error) error
}

type literal struct{ value any }

type call struct {
	name      string
	arguments []expression
}

// member is of.key and of[key].
type member struct{ of, key expression }

// bracketed returns the inside of a string that is an expression in brackets. [[ begins a literal
// that starts with a bracket.
func bracketed(text string) (string, bool) {
	if len(text) < 2 || text[0] != '[' || text[len(text)-1] != ']' || text[1] == '[' {
		return "", false
	}
	return text[1 : len(text)-1], true
}

// longest is Resource Manager's max length of an expression, in characters.
const longest = 24_576

// parse parses an expression without its brackets.
func parse(text string) (expression, error) {
	if len(text) > longest {
		return nil, problemf("The language expression length limit exceeded. Limit: '%d' and actual: "+
			"'%d'. Please see https://aka.ms/arm-syntax for usage details", longest, len(text))
	}
	p := &parser{text: text}
	e, err := p.expression()
	if p.peek(); err == nil && p.at < len(text) {
		err = fmt.Errorf("expected its end at character %d, not '%c'", p.at+1, text[p.at])
	}
	if err != nil {
		return nil, problemf("Unable to parse language expression '%s': %v", text, err)
	}
	return e, nil
}

type parser struct {
	text string
	at   int
}

// peek skips spaces and returns the next byte; 0 at the end.
func (p *parser) peek() byte {
	for p.at < len(p.text) && space(p.text[p.at]) {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *parser) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.at++
	return true
}

func (p *parser) unexpected(want string) error {
	if p.peek() == 0 {
		return fmt.Errorf("expected %s, and it has ended", want)
	}
	return fmt.Errorf("expected %s at character %d, not '%c'", want, p.at+1, p.text[p.at])
}

func (p *parser) expression() (expression, error) {
	e, err := p.primary()
	for err == nil {
		var key expression
		switch {
		case p.take('.'):
			name := p.identifier()
			if name == "" {
				return nil, p.unexpected("a name")
			}
			key = literal{name}
		case p.take('['):
			key, err = p.expression()
			if err == nil && !p.take(']') {
				err = p.unexpected("']'")
			}
		default:
			return e, nil
		}
		e = member{e, key}
	}
	return nil, err
}

func (p *parser) primary() (expression, error) {
	switch c := p.peek(); {
	case c == '\'':
		return p.quoted()
	case digit(c) || c == '-':
		return p.number()
	case letter(c):
		return p.call()
	}
	return nil, p.unexpected("a value")
}

// quoted parses a string, in which a quote is written twice.
func (p *parser) quoted() (expression, error) {
	var text strings.Builder
	for p.at++; p.at < len(p.text); p.at++ {
		if p.text[p.at] == '\'' {
			if !strings.HasPrefix(p.text[p.at:], "''") {
				p.at++
				return literal{text.String()}, nil
			}
			p.at++
		}
		text.WriteByte(p.text[p.at])
	}
	return nil, p.unexpected("a quote")
}

func (p *parser) number() (expression, error) {
	from := p.at
	for p.at++; p.at < len(p.text) && digit(p.text[p.at]); p.at++ {
	}
	n, err := strconv.ParseInt(p.text[from:p.at], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("'%s' is no integer", p.text[from:p.at])
	}
	return literal{n}, nil
}

// identifier parses a name, or returns "" if none begins here.
func (p *parser) identifier() string {
	p.peek()
	from := p.at
	for p.at < len(p.text) && (letter(p.text[p.at]) || p.at > from && digit(p.text[p.at])) {
		p.at++
	}
	return p.text[from:p.at]
}

func (p *parser) call() (expression, error) {
	c := call{name: p.identifier()}
	for p.take('.') { // a user-defined function
		c.name += "." + p.identifier()
	}
	if !p.take('(') {
		return nil, p.unexpected("'(' after '" + c.name + "'")
	}
	if p.take(')') {
		return c, nil
	}
	for {
		argument, err := p.expression()
		if err != nil {
			return nil, err
		}
		c.arguments = append(c.arguments, argument)
		switch {
		case p.take(')'):
			return c, nil
		case !p.take(','):
			return nil, p.unexpected("',' or ')'")
		}
	}
}

func (l literal) calls(func(call) error) error { return nil }

func (c call) calls(visit func(call) error) error {
	if err := visit(c); err != nil {
		return err
	}
	for _, argument := range c.arguments {
		if err := argument.calls(visit); err != nil {
			return err
		}
	}
	return nil
}

func (m member) calls(visit func(call) error) error {
	if err := m.of.calls(visit); err != nil {
		return err
	}
	return m.key.calls(visit)
}
