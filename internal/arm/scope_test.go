package arm

import "testing"

func TestWildcards(t *testing.T) {
	const clusters = "Microsoft.ContainerService/managedClusters"
	tests := []struct {
		pattern, action string
		want            bool
	}{
		{"*", clusters + "/read", true},
		{"*/read", clusters + "/read", true},
		{"*/read", clusters + "/write", false},
		{"microsoft.containerservice/managedclusters/flexNodeConfig/*",
			clusters + "/flexNodeConfig/regenerateToken/action", true},
		{clusters + "/read", clusters + "/flexNodeConfig/read", false},
	}
	for _, tt := range tests {
		if got := Allows([]string{tt.pattern}, tt.action); got != tt.want {
			t.Errorf("%s %s: %v", tt.pattern, tt.action, got)
		}
	}
	if Within("/subscriptions/ab", "/subscriptions/a") ||
		!Within("/subscriptions/A/x", "/subscriptions/a") || !Within("/x", "/") {
		t.Error("scopes")
	}
}
