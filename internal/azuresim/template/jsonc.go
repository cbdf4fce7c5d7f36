package template

import "fmt"

// JSON converts what Resource Manager accepts to JSON: comments, unquoted names and multi-line
// strings. The az CLI sends all of them.
func JSON(text []byte) ([]byte, error) {
	out := make([]byte, 0, len(text))
	for at := 0; at < len(text); {
		c := text[at]
		var next int
		switch {
		case c == '"':
			out, next = str(out, text, at)
		case c == '/':
			next = comment(text, at)
		case letter(c):
			out, next = word(out, text, at)
		default:
			out, next = append(out, c), at+1
		}
		if next < 0 {
			return nil, fmt.Errorf("what begins at character %d has no end", at+1)
		}
		at = next
	}
	return out, nil
}

// str copies a string and returns the offset after it, negative if it does not end.
func str(out, text []byte, at int) ([]byte, int) {
	escapes := map[byte]string{'\n': `\n`, '\r': `\r`, '\t': `\t`}
	out = append(out, '"')
	for at++; at < len(text); at++ {
		c := text[at]
		if escape, ok := escapes[c]; ok {
			out = append(out, escape...)
			continue
		}
		out = append(out, c)
		if c == '"' {
			return out, at + 1
		}
		if c == '\\' && at+1 < len(text) {
			at++
			out = append(out, text[at])
		}
	}
	return out, -1
}

// comment returns the offset after a comment, negative if it does not end or is none.
func comment(text []byte, at int) int {
	if at+1 == len(text) {
		return -1
	}
	switch text[at+1] {
	case '/':
		for at < len(text) && text[at] != '\n' {
			at++
		}
		return at
	case '*':
		for at += 2; at+1 < len(text); at++ {
			if text[at] == '*' && text[at+1] == '/' {
				return at + 2
			}
		}
	}
	return -1
}

// word copies true, false or null, or a name, to which it adds quotes.
func word(out, text []byte, at int) ([]byte, int) {
	end := at
	for end < len(text) && (letter(text[end]) || digit(text[end])) {
		end++
	}
	after := end
	for after < len(text) && space(text[after]) {
		after++
	}
	if after == len(text) || text[after] != ':' {
		return append(out, text[at:end]...), end
	}
	out = append(append(append(out, '"'), text[at:end]...), '"')
	return out, end
}

func letter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$'
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
