package health

import "testing"

func TestFirewallOpen(t *testing.T) {
	found := func(f Firewall) Evidence {
		return with(func(e *Evidence) { e.Firewall = Answered(f, nil) })
	}
	const closed, owner = "Closed", OwnerMachine
	const ufw = `### tuple ### allow tcp 10250 0.0.0.0/0 any 0.0.0.0/0 in
### tuple ### allow tcp 30000:32767 0.0.0.0/0 any 0.0.0.0/0 in
### tuple ### allow any any 0.0.0.0/0 any 0.0.0.0/0 in_cni0
### tuple ### route:allow any any 0.0.0.0/0 any 0.0.0.0/0 in_cni0
`
	const filter = `*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
`
	const opened = `-A INPUT -p tcp -m tcp --dport 10250 -j ACCEPT
-A INPUT -i cni0 -j ACCEPT
-A FORWARD -i cni0 -j ACCEPT
-A FORWARD -o cni0 -m comment --comment "x" -j ACCEPT
COMMIT
`
	const nft = `table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		tcp dport { 22, 10250 } accept
	}

	chain forward {
		type filter hook forward priority filter; policy drop;
	}

	chain output {
		type filter hook output priority filter; policy accept;
	}
}
table ip filter {
	chain FORWARD {
		type filter hook forward priority filter; policy drop;
	}
}
`
	check(t, FirewallOpen, []expect{
		blank("NotChecked"),
		{"none", found(Firewall{}), True, "", "", ""},
		{"ufw", found(Firewall{UFW: true}), False, closed, owner, "run: ufw allow 10250/tcp; ufw "},
		{"ufw, almost", found(Firewall{UFW: true, UFWRules: ufw}), False, closed, owner,
			"run: ufw route allow out on cni0; or"},
		{"ufw, open", found(Firewall{UFW: true, UFWRules: ufw +
			"### tuple ### route:allow any any 0.0.0.0/0 any 0.0.0.0/0 out_cni0\n"}), True, "", "", ""},
		{"firewalld", found(Firewall{Firewalld: true}), False, closed, owner,
			"--zone=trusted --add-interface=cni0; firewall-cmd --reload"},
		{"firewalld, open", found(Firewall{Firewalld: true, Zones: `<port port="10250" protocol="tcp"/>
<port port="30000-32767" protocol="tcp"/><interface name="cni0"/>`}), True, "", "", ""},
		{"iptables", found(Firewall{IPTables: filter + "COMMIT\n"}), False, closed, owner,
			"iptables -I FORWARD -o cni0 -j ACCEPT"},
		{"iptables, open", found(Firewall{IPTables: filter + opened}), True, "", "", ""},
		{"nftables", found(Firewall{NFT: nft}), False, closed, owner,
			"run: nft insert rule inet filter input iifname cni0 accept; nft insert rule inet filter " +
				"forward iifname cni0 accept; nft insert rule inet filter forward oifname cni0 accept; or"},
	})
}
