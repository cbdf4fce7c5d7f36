SHELL := /bin/bash
GO ?= go
# A commit with the tag of a version is that version; another one comes before the one in VERSION.
VERSION ?= $(shell git describe --tags --exact-match --match 'v[0-9]*' --dirty 2>/dev/null || \
	echo "v$$(cat VERSION)-dev.$$(git rev-list --count HEAD 2>/dev/null || echo 0)")
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
# Debug information that is stripped is not compiled. Compilers collect their garbage seldom; there
# are more of them than processors, of which each has half, so that none spends one on collecting.
# The lab compiles its components in the same way (lab/component) and shares what is made.
CPUS := $(shell nproc 2>/dev/null || echo 2)
BUILD = GOGC=1600 GOMEMLIMIT=1GiB GOMAXPROCS=$$((($(CPUS) + 1) / 2)) \
	$(GO) build -p $$(($(CPUS) + 1)) -ldflags '$(LDFLAGS)'

# Tests compile as programs do, so that each package is compiled once. `make lint` vets them.
export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath -gcflags=all=-dwarf=false -vet=off
export CGO_ENABLED := 0

.DEFAULT_GOAL := help
.PHONY: help build image packages apt-repository build-arm64 quick check lint race fuzz coverage \
	golden pins openapi contract azurite az-extension chart examples size test test-long \
	test-arm64 demo demo-down clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build every program into bin/
	$(BUILD) -o bin/ ./cmd/aks-flex-node ./cmd/flexnode-rp ./cmd/azuresim
	cd lab && $(BUILD) -o ../bin/ ./cmd/flexlab

# The programs of all architectures first; then the image, without a container engine.
IMAGE ?= flexnode-rp
image: ## Make the container image of flexnode-rp, for amd64 and arm64, in bin/flexnode-rp-image.tar
	for arch in amd64 arm64; do \
		GOOS=linux GOARCH=$$arch $(BUILD) -buildvcs=false -o bin/image/$$arch/ ./cmd/flexnode-rp || exit 1; \
	done
	$(RELEASE) image --name '$(IMAGE)' --programs '$(CURDIR)/bin/image' \
		--out '$(CURDIR)/bin/flexnode-rp-image.tar'

# A trial key is made where ARCHIVE_HOME, a directory of GnuPG, is not there; nothing is published
# with it. ARCHIVE_KEYS are the fingerprints of the keys that machines trust; the first signs.
ARCHIVE_HOME ?= bin/archive-key
ARCHIVE_KEYS ?=
KEEP ?= 10
RELEASE = $(GO) run -C packaging ./release --version '$(VERSION)' --commit '$(COMMIT)' \
	--time $$(git log -1 --format=%ct 2>/dev/null || echo 0)
ARCHIVE = --home '$(abspath $(ARCHIVE_HOME))' --keys '$(ARCHIVE_KEYS)' \
	--programs '$(CURDIR)/bin/packages/programs' --packages '$(CURDIR)/bin/packages'
packages: ## Make the Debian packages, for amd64 and arm64, in bin/packages
	for arch in amd64 arm64; do \
		GOOS=linux GOARCH=$$arch $(BUILD) -buildvcs=false -o bin/packages/programs/$$arch/ \
			./cmd/aks-flex-node ./cmd/flexnode-rp || exit 1; \
	done
	rm -f bin/packages/*.deb
	$(RELEASE) packages $(ARCHIVE)

ARCHIVE_URL ?=
apt-repository: ## Add bin/packages to the signed repository bin/apt; for install.sh, ARCHIVE_URL=...
	$(RELEASE) repository $(ARCHIVE) --repository '$(CURDIR)/bin/apt' --url '$(ARCHIVE_URL)' \
		--keep '$(KEEP)'

build-arm64: ## Build the agent for arm64 into bin/arm64/
	GOARCH=arm64 $(BUILD) -o bin/arm64/ ./cmd/aks-flex-node

# What takes long or needs root is left out; results are cached. Many tests wait, so the tests of
# six packages run at once.
LONGEST = TestThreeMembersConform|TestMembersAreLost|TestEmbeddedConforms
LONGEST := $(LONGEST)|TestAHostileCluster|TestManagerRolesAreRemembered|^TestAz$$
quick: ## A minute: vet, and unit tests without the long ones
	$(GO) vet ./...
	$(GO) test -p 6 -short -skip '$(LONGEST)' . ./api/... ./cmd/... ./internal/... ./manifests ./scripts

check: lint race fuzz build-arm64 ## Format, vet, staticcheck, race tests, fuzz briefly, generated docs

# The linters are programs of a module of their own, and are built once into bin/.
LINT = $(GO) vet ./... && '$(CURDIR)/bin/tools/staticcheck' ./... && \
	'$(CURDIR)/bin/tools/golangci-lint' run -c '$(CURDIR)/.golangci.yaml' ./...
lint: export GOGC = 400
lint: ## gofmt, vet, staticcheck, golangci-lint
	cd test/tools && $(GO) build -o '$(CURDIR)/bin/tools/' tool
	@test -z "$$(gofmt -l *.go api cmd docs internal lab manifests packaging scripts test testdata | tee /dev/stderr)" || \
		{ echo "run gofmt -w on the files above"; exit 1; }
	$(GO) vet -tags azurite ./internal/rp/credential
	for module in . lab packaging; do (cd $$module && $(LINT)) || exit 1; done
	cd test/judges && $(GO) vet ./...

race: export CGO_ENABLED = 1
race: ## Unit tests and stories with the race detector, without the long ones
	$(GO) test -race -short ./...
	cd packaging && $(GO) test -race -short ./...
	cd lab && $(GO) test -race -short $$($(GO) list ./... | grep -v /e2e)

fuzz: ## Run each fuzz target for a few seconds
	./test/fuzz 5s

coverage: ## Statement coverage of the agent by unit tests and stories; at least 85 % of each package
	./test/coverage

size: ## Lines of code, tests and test data by directory, words of documents, and sums
	@scripts/size

golden: ## Rewrite golden files and generated documents; review the diff
	$(GO) test ./internal/rp/flexnode -run 'TestBundles|TestOptions' -update
	$(GO) test ./internal/rp/store -run TestLikelyRows -update
	$(GO) test ./internal/node ./internal/config ./internal/release ./internal/health \
		./cmd/aks-flex-node ./cmd/flexnode-rp -update

pins: ## Pin releases: make pins FROM="kubernetes@1.36.4 LIST"; review the diff
	$(GO) run ./internal/release/genpins $(FROM)
	$(MAKE) golden

openapi: ## Rewrite docs/api/openapi.json from api/typespec
	cd api/typespec && npm ci --no-progress --silent && node build.mjs

contract: ## Check the API: TypeSpec, Microsoft's ARM rules, and the provider's own traffic through oav
	./test/contract

az-extension: ## Make the extension of the az CLI, in bin/aks_flex_node-VERSION-py3-none-any.whl
	$(GO) run -C packaging ./az -version '$(VERSION)'

chart: ## Check the Helm chart with Helm's library
	cd packaging/helm/tools && $(GO) vet ./... && $(GO) test ./...

examples: ## Check the Bicep example by its grammar and against the ARM template
	cd test/bicep && npm ci --no-progress --silent && node check.mjs

azurite: ## Check the delivery through blob storage against Azure's own emulator
	./test/azurite/run

test: ## Everything: unit tests, stories, and, as root on Linux, end to end in the lab
	./test/run

test-long: build ## The long campaigns: kill points, kills on real machines, identities, fuzzing, chaos
	./test/long

test-arm64: ## The agent's unit tests and stories as programs of arm64, with QEMU (qemu-user-static)
	./test/arm64

demo: build ## A node's life in a lab: URL, changes, upgrade, rollback, deletion; leaves it up
	bin/flexlab demo

demo-down: build ## Stop the lab and leave nothing
	bin/flexlab down

clean: ## Remove what make has built here
	rm -rf bin
