package config

import "testing"

func TestCanonical(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: `{}`,
		"\xef\xbb\xbf{\n \"b\": 1.50, \"a\": [true, null, {}, []] }": `{"a":[true,null,{},[]],` +
			`"b":1.50}`,
		`{"node": {"labels": {"b": "<\u0026>", "a.b/c": "\""}}}`: `{"node":{"labels":` +
			`{"a.b/c":"\"","b":"<&>"}}}`,
		`{"config": {"npd": {"version": "1.0.0"}}}`:           `{"npd":{"version":"1.0.0"}}`,
		`{"components": {"runc": "1.3.3"}, "networking": {}}`: `{"runc":{"version":"1.3.3"}}`,
		`{"node": {"kubelet": {"clusterFQDN": "edge.example"}}}`: `{"node":{"kubelet":` +
			`{"serverURL":"https://edge.example"}}}`,
		`{"agent": {"enableDriftDetectionAndRemediation": true}}`: `{"agent":` +
			`{"driftPolicy":"repair"}}`,
	} {
		got, err := Canonical([]byte(text))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "[]", `{"a": 1, "a": 1}`,
		`{"components": {"runc": "1.3.3"}, "runc": {"version": "1.3.4"}}`,
	} {
		if got, err := Canonical([]byte(text)); err == nil {
			t.Errorf("%q gives %s", text, got)
		}
	}
}
