package metrics

import "testing"

func TestText(t *testing.T) {
	got := string(Text([]Family{
		{"up", Gauge, "Whether it is\nup.", []Sample{{Value: 1}}},
		{"none", Gauge, "Nothing.", nil},
		{"work_seconds", Summary, `A \ b.`, []Sample{
			{"_sum", []string{"kind", `a"b\c` + "\n", "to", ""}, 1.5},
			{"_count", []string{"kind", "x"}, 1764000000},
		}},
	}))
	want := `# HELP up Whether it is\nup.
# TYPE up gauge
up 1
# HELP work_seconds A \\ b.
# TYPE work_seconds summary
work_seconds_sum{kind="a\"b\\c\n",to=""} 1.5
work_seconds_count{kind="x"} 1.764e+09
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
