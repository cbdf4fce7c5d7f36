package config

import (
	"testing"
	"time"
)

func TestMaintenanceWindowOpens(t *testing.T) {
	nights := MaintenanceWindow{Start: "22:00", Duration: "4h"}
	weekend := MaintenanceWindow{Days: []string{"Saturday"}, Start: "23:30", Duration: "24h"}
	east := MaintenanceWindow{Start: "01:00", Duration: "1h", UTCOffset: "+05:30"}
	west := MaintenanceWindow{Days: []string{"Monday"}, Start: "20:00", Duration: "1h",
		UTCOffset: "-08:00"}
	for _, c := range []struct {
		window    MaintenanceWindow
		now, want string // 2026-11-22 is a Sunday
	}{
		{nights, "2026-11-22T12:00:00Z", "2026-11-22T22:00:00Z"},
		{nights, "2026-11-22T22:00:00Z", "2026-11-22T22:00:00Z"},
		{nights, "2026-11-22T01:59:59Z", "2026-11-22T01:59:59Z"},
		{nights, "2026-11-22T02:00:00Z", "2026-11-22T22:00:00Z"},
		{nights, "2026-12-31T23:00:00Z", "2026-12-31T23:00:00Z"},
		{weekend, "2026-11-22T12:00:00Z", "2026-11-22T12:00:00Z"}, // began yesterday
		{weekend, "2026-11-22T23:30:00Z", "2026-11-28T23:30:00Z"},
		{weekend, "2026-11-23T00:00:00Z", "2026-11-28T23:30:00Z"},
		{east, "2026-11-22T19:29:59Z", "2026-11-22T19:30:00Z"},
		{east, "2026-11-22T20:29:59Z", "2026-11-22T20:29:59Z"},
		{east, "2026-11-22T20:30:00Z", "2026-11-23T19:30:00Z"},
		{west, "2026-11-22T12:00:00Z", "2026-11-24T04:00:00Z"},
		{west, "2026-11-24T04:30:00Z", "2026-11-24T04:30:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.window.Opens(now).UTC().Format(time.RFC3339); got != c.want {
			t.Errorf("%+v at %s opens %s, want %s", c.window, c.now, got, c.want)
		}
	}
}
