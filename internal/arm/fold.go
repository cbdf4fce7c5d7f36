package arm

// Fold returns a text with its ASCII letters in lower case. ARM ignores the case of these only:
// Unicode's rules would have U+017F be an s, and U+212A a k, in one place and not in another.
func Fold(s string) string {
	for i := range len(s) {
		if lower(s[i]) == s[i] {
			continue
		}
		b := []byte(s)
		for ; i < len(b); i++ {
			b[i] = lower(b[i])
		}
		return string(b)
	}
	return s
}

// EqualFold reports whether two texts differ at most in the case of their ASCII letters.
func EqualFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c |= 0x20
	}
	return c
}
