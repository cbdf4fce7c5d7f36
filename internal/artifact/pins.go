package artifact

import "strings"

// pins are the digests of the releases this program knows by heart: name, version, architecture,
// digest. Each line was read from a list of published release checksums, not computed here; SHA-256
// where the project publishes it, SHA-512 for node-problem-detector. A new line is added only from
// the project's own checksum file of that release.
const pins = `
kubelet 1.35.1 amd64 e7343310e03ff0d424df4397bdfa4468947d6d1f0f93dac586c1e8d6e4086d5d
kubelet 1.35.1 arm64 73475c6db8fd8a9780b1b378fa2f917875e6146166c24603c1abc6eafd4493a8
kubelet 1.34.4 amd64 03b8fea715a7ef82eeaf518dee34c72670c57cc7bc40dc1320c04fbf4f15172f
kubelet 1.34.4 arm64 c78845473c434ee85a2444eeab87f8b20f524e3ab6854a078f79468f44aad8f5
kubelet 1.33.8 amd64 1caa69c5328cfa774218f75f0621a6f10a1b97e095af85015f468aeb8fdf956a
kubelet 1.33.8 arm64 e835f15be6d8b7b27b963a46c4a054f7663c26741f17e003bfcb8271350cf882
kubectl 1.35.1 amd64 36e2f4ac66259232341dd7866952d64a958846470f6a9a6a813b9117bd965207
kubectl 1.35.1 arm64 706256e21a4e9192ee62d1a007ac0bfcff2b0b26e92cc7baad487a6a5d08ff82
kubectl 1.34.4 amd64 d50c359d95e0841eaad08ddc27c7be37cba8fdccfba5c8e2ded65e121ff112db
kubectl 1.34.4 arm64 5b982c0644ab1e27780246b9085a5886651b4a7ed86243acbb2bacc1bea01dda
kubectl 1.33.8 amd64 7f9c3faab7c9f9cc3f318d49eb88efc60eb3b3a7ce9eee5feb39b1280e108a29
kubectl 1.33.8 arm64 76e284669f1f6343bd9fe2a011757809c8c01cf51da9f85ee6ef4eb93c8393a8
kubeadm 1.35.1 amd64 8a7ff344eef1bfba88f9a74b3fdc9ea4448c94f1b3cefb8c0aeeaf1f96e05053
kubeadm 1.35.1 arm64 80097a3c4ef824f4edfe131d2bd429772c4be3a460c42a44f2320164a917de32
kubeadm 1.34.4 amd64 b967f1fa0e36621c402d38bb560eb4a943954d5cf5a00e5150842f6f5da73455
kubeadm 1.34.4 arm64 d8028b7e8c8d6c9b3fc3da6bc88d4d0cfb33df1b4b026a7d6e8c35d1471c9f6e
kubeadm 1.33.8 amd64 8259af514dc3655e8abec1a69b637f31cce2ecb940a80ae4a268e5287890f009
kubeadm 1.33.8 arm64 b5248b51e66e4716261f2c926fe2f08a293795e6863099e7792b4d57dbb9109e
containerd 2.2.1 amd64 f5d8e90ecb6c1c7e33ecddf8cc268a93b9e5b54e0e850320d765511d76624f41
containerd 2.2.1 arm64 dac15a0d412a24be8bfe6a40cec8f51829062725169f1e72ac7d120a891ef5b6
containerd 2.1.6 amd64 4793dc5c1f34ebf8402990d0050f3c294aa3c794cd5a4baa403c1cf10602326d
containerd 2.1.6 arm64 88d6e32348c36628c8500a630c6dd4b3cb8c680b1d18dc8d1d19041f67757c6e
containerd 1.7.30 amd64 ca0f27e34411504acd1cd24fcbaa71b9c47d31ce9408c47c54a2dc1810ceb1df
containerd 1.7.30 arm64 a09c3b01b3b6935e839c8a9588b5528c57ebfca4747d816654a7d1e7575c0a63
runc 1.3.4 amd64 5966ca40b6187b30e33bfc299c5f1fe72e8c1aa01cf3fefdadf391668f47f103
runc 1.3.4 arm64 d6dcab36d1b6af1b72c7f0662e5fcf446a291271ba6006532b95c4144e19d428
cni-plugins 1.9.1 amd64 b98f74a0f8522f0a83867178729c1aa70f2158f90c45a2ca8fa791db1c76b303
cni-plugins 1.9.1 arm64 56171987d3947707c3563db2f4001bccaf50fd63468611b9f3cbecb1375ee7ec
cni-plugins 1.8.0 amd64 ab3bda535f9d90766cccc90d3dddb5482003dd744d7f22bcf98186bf8eea8be6
cni-plugins 1.8.0 arm64 57ce466fc3b79db1f19b8f4c63e07a1112306efa53c94fe810a2150dd9e07ddb
node-problem-detector 1.34.0 amd64 3c55ff6ffadd77dbc3df3774d13164587103ca87c8b6914f5c71c87d8f498b78621e0c96538bb3c69f8f1b4194a6da553aa56b1b52001a7d9a67776ac24e80bd
node-problem-detector 1.34.0 arm64 ca1d34e64b80f6b2bdf86cfde95154122d6e14c707a748ea6fc414a55f391b1bb572a96b6b2c285996af0232917fa87e14e037125aa03a62247383af3e48c095
`

type pin struct {
	name    Name
	version string
	arch    string
	digest  string
}

func pinTable() []pin {
	var table []pin
	for line := range strings.Lines(strings.TrimSpace(pins)) {
		f := strings.Fields(line)
		table = append(table, pin{name: Name(f[0]), version: f[1], arch: f[2], digest: f[3]})
	}
	return table
}

// pinned gives the digest of a release known by heart, or "".
func pinned(n Name, version, arch string) string {
	for _, p := range pinTable() {
		if p.name == n && p.version == version && p.arch == arch {
			return p.digest
		}
	}
	return ""
}

// Pinned lists the versions of an artifact whose digests are known by heart on every architecture,
// newest first: these are the versions that can be a default.
func Pinned(n Name) []string {
	var versions []string
	for _, p := range pinTable() {
		if p.name == n && p.arch == "amd64" && pinned(n, p.version, "arm64") != "" {
			versions = append(versions, p.version)
		}
	}
	return versions
}
