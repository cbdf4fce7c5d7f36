package policy

import "cmp"

// Diagnose says what a provider may ask the machine for, to find out what is wrong with it.
type Diagnose struct {
	// Doctor and SupportBundle are allow or refuse; usually allow.
	Doctor        string `json:"doctor,omitempty"`
	SupportBundle string `json:"supportBundle,omitempty"`
	// Key is the recipient of age that support bundles are encrypted to; without one there are none.
	Key string `json:"key,omitempty"`
}

const (
	allow  = "allow"
	refuse = "refuse"
	// keyOfBundles is the path of Diagnose.Key.
	keyOfBundles = "diagnose.key"
)

// diagnosis is one kind of what a provider may ask for, with the name that requests have for it.
type diagnosis struct{ name, key, given, means string }

func (d Diagnose) kinds() []diagnosis {
	return []diagnosis{
		{"doctor", "diagnose.doctor", d.Doctor, "the report of doctor, for a provider that asks"},
		{"supportBundle", "diagnose.supportBundle", d.SupportBundle,
			"a support bundle, for a provider that asks"},
	}
}

// Refuses returns why the machine does not give a provider a diagnosis of a kind; "" if it does.
func (d Diagnose) Refuses(kind string) string {
	for _, known := range d.kinds() {
		switch {
		case known.name != kind:
		case cmp.Or(known.given, allow) != allow:
			return known.key + " refuses it in " + File
		case kind == "supportBundle" && d.Key == "":
			return "no key in " + File + " that a support bundle could be encrypted to: set " + keyOfBundles
		default:
			return ""
		}
	}
	return "the agent does not know this kind of diagnosis"
}
