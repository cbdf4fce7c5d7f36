// Package metrics writes metrics in the text format of Prometheus
// (https://prometheus.io/docs/instrumenting/exposition_formats/). It counts nothing and serves
// nothing: its caller provides the numbers.
package metrics

import (
	"bytes"
	"fmt"
	"strings"
)

// The supported types of metrics.
const (
	Gauge   = "gauge"
	Counter = "counter"
	Summary = "summary" // of a sum and a count, without quantiles
)

// Family is a metric with its samples. It is omitted if it has none.
type Family struct {
	Name, Type, Help string
	Samples          []Sample
}

// Sample is one number.
type Sample struct {
	Suffix string   // follows the name of the family: _sum and _count of a summary
	Labels []string // alternating names and values
	Value  float64
}

// Text returns the families in the text format.
func Text(families []Family) []byte {
	var b bytes.Buffer
	for _, f := range families {
		if len(f.Samples) == 0 {
			continue
		}
		fmt.Fprintf(&b, "# HELP %s %s\n", f.Name, helpEscapes.Replace(f.Help))
		fmt.Fprintf(&b, "# TYPE %s %s\n", f.Name, f.Type)
		for _, s := range f.Samples {
			fmt.Fprintf(&b, "%s%s%s %g\n", f.Name, s.Suffix, labels(s.Labels), s.Value)
		}
	}
	return b.Bytes()
}

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func labels(pairs []string) string {
	if len(pairs) == 0 {
		return ""
	}
	var list []string
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, pairs[i]+`="`+labelEscapes.Replace(pairs[i+1])+`"`)
	}
	return "{" + strings.Join(list, ",") + "}"
}
