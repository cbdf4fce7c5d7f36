package template

import "fmt"

// Problem describes an error in a template or its parameters, in Resource Manager's words.
type Problem string

func (p Problem) Error() string { return string(p) }

func problemf(format string, args ...any) error { return Problem(fmt.Sprintf(format, args...)) }

// typeError reports an argument of the wrong type.
type typeError struct {
	at        int
	want, got string
}

func (e typeError) Error() string { return fmt.Sprintf("argument %d is not %s", e.at+1, e.want) }

// arg returns an argument of type T, or the zero value if it is missing.
func arg[T any](arguments []any, at int) (T, error) {
	var zero T
	if at >= len(arguments) {
		return zero, nil
	}
	v, ok := arguments[at].(T)
	if !ok {
		return zero, typeError{at, kind(zero), kind(arguments[at])}
	}
	return v, nil
}

// args returns the arguments from an index on, all of type T.
func args[T any](arguments []any, from int) ([]T, error) {
	var all []T
	for at := from; at < len(arguments); at++ {
		v, err := arg[T](arguments, at)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}
