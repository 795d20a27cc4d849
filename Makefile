# `make help` lists the targets. A fresh machine needs Go, git and make.

BIN := bin
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
OPENAPI_GENERATOR := 7.25.0
OPENAPI_GENERATOR_JAR := $(BIN)/openapi-generator-cli-$(OPENAPI_GENERATOR).jar

.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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
	test -z "$$(gofmt -l . | tee /dev/stderr)"
	go vet ./...
	go run $(GOLANGCI_LINT) run ./...
	go mod tidy -diff

contract: conformance/node_modules ## Lint openapi.yaml with Spectral and Redocly
	cd conformance && npm run --silent lint

npm: build conformance/node_modules ## The official npm client pays its way through `parley dev`
	cd conformance && PARLEY=../$(BIN)/parley node journey.mjs

chain: build postgres conformance/chain/node_modules ## The official clients and facilitator, and a real EVM node, around `parley serve`
	go build -o $(BIN)/chain-postgres ./conformance/chain/postgres
	cd conformance/chain && PARLEY=../../$(BIN)/parley POSTGRES=../../$(BIN)/chain-postgres node chain.mjs

conformance/node_modules: conformance/package.json conformance/package-lock.json
	cd conformance && npm ci --no-audit --no-fund && touch node_modules

# anvil's package is for Linux on amd64 and asks for Node 20, which its program does not use: hence --force. On other
# machines set ANVIL to an anvil of their own. None of the packages needs its install scripts.
conformance/chain/node_modules: conformance/chain/package.json conformance/chain/package-lock.json
	cd conformance/chain && npm ci --force --ignore-scripts --no-audit --no-fund && touch node_modules

sdk-java: build postgres $(OPENAPI_GENERATOR_JAR) ## Generate a Java SDK; two agents use it to talk and pay through `parley dev`
	$(call sdk,java)
	mvn -B -q -f conformance/sdk/java compile $(call log,java-mvn)
	OPENAPI_GENERATOR=$(OPENAPI_GENERATOR) go run ./conformance/live $(BIN)/parley \
	  java -cp '$(BIN)/sdk/java/target/classes:$(BIN)/sdk/java/target/dependency/*' Journey

# Debian 12's package cargo is too old, its cargo-web is not; later releases have a cargo that does.
sdk-rust: build postgres $(OPENAPI_GENERATOR_JAR) ## Generate a Rust SDK; two agents use it to talk and pay through `parley dev`
	@$(call install,cargo,cargo-web) || { $(call install,cargo,cargo); }
	$(call sdk,rust)
	cargo build -q --locked --manifest-path conformance/sdk/rust/Cargo.toml --target-dir $(BIN)/sdk/rust-target
	OPENAPI_GENERATOR=$(OPENAPI_GENERATOR) go run ./conformance/live $(BIN)/parley $(BIN)/sdk/rust-target/debug/journey

$(OPENAPI_GENERATOR_JAR): | jdk
	mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy -DoutputDirectory=$(abspath $(BIN)) \
	  -Dartifact=org.openapitools:openapi-generator-cli:$(OPENAPI_GENERATOR) $(call log,openapi-generator)

jdk:
	@$(call install,javac,default-jdk-headless)
	@$(call install,mvn,maven)

# $(call sdk,LANGUAGE) generates bin/sdk/LANGUAGE.
sdk = rm -rf $(BIN)/sdk/$(1) \
	&& java -jar $(OPENAPI_GENERATOR_JAR) generate -c conformance/sdk/$(1)/openapi-generator.yaml $(call log,$(1))

# $(call log,NAME), behind a command, keeps what it says in a file unless it fails. The generator warns of every header
# name, thousands of times, and then leaves it as it is; Maven writes escape sequences even when it has nothing to say.
log = >$(BIN)/sdk-$(1).log 2>&1 || { cat $(BIN)/sdk-$(1).log; exit 1; }

# $(call install,COMMAND,PACKAGE) installs Debian's package if the machine has no such command.
install = command -v $(1) >/dev/null || { echo "installing $(2)"; apt-get update -qq \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(2) >/dev/null; }

in-step: generate ## Fail if the generated code is not what openapi.yaml says
	git diff --exit-code -- gen client

fuzz: ## Send generated requests to every operation for 20 minutes
	go test ./server -run '^$$' -fuzz '^FuzzOperations$$' -fuzztime 20m -timeout 30m

plans: ## Load a million messages and list the plan of every statement (bin/plans.txt); fails on a scan
	go test -tags plans -run '^TestPlans$$' -timeout 30m -v ./server

attack: postgres attacked ## Kill, cheat and cut off real servers, and check the books after each (ATTACK_ROUNDS=20)
	go test -tags attack -count=1 -timeout 30m -v ./attack

attacked: ## Build bin/parley-attacked, the server with crash points that the attack suite starts
	go build -tags crashpoints -o $(BIN)/parley-attacked ./cmd/parley

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

.PHONY: help demo dev test generate build lint contract npm chain in-step fuzz plans attack attacked sdk-java sdk-rust jdk check postgres
