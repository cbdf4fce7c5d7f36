// Package metrics writes metrics in the text format of Prometheus
// (https://prometheus.io/docs/instrumenting/exposition_formats/). It counts nothing and serves
// nothing: its caller provides the numbers.
package metrics

import (
	"bytes"
	"strconv"
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
	Suffix string // follows the name of the family: _sum and _count of a summary
	// Labels are alternating names and values.
	Labels []string
	Value  float64
}

// Text returns the families in the text format.
func Text(families []Family) []byte {
	var b bytes.Buffer
	for _, f := range families {
		if len(f.Samples) == 0 {
			continue
		}
		b.WriteString("# HELP " + f.Name + " " + helpEscapes.Replace(f.Help) + "\n")
		b.WriteString("# TYPE " + f.Name + " " + f.Type + "\n")
		for _, s := range f.Samples {
			b.WriteString(f.Name + s.Suffix + labels(s.Labels) + " ")
			b.WriteString(strconv.FormatFloat(s.Value, 'g', -1, 64) + "\n")
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
