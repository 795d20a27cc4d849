# `make help` lists the targets. A fresh machine needs Go, git and make.

BIN := bin
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.DEFAULT_GOAL := help

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
	test -z "$$(gofmt -l . | tee /dev/stderr)"
	go vet ./...
	go run $(GOLANGCI_LINT) run ./...
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
	cd conformance && PARLEY=../$(BIN)/parley node journey.mjs

skill: build postgres conformance/node_modules ## Do what skills/parley/SKILL.md says, command by command, and lose its answers
	go run ./conformance/live $(BIN)/parley node conformance/skill.mjs

snippets: build postgres conformance/node_modules ## Run what the README shows, and every example of the contract
	go run ./conformance/live $(BIN)/parley node conformance/snippets.mjs
	go test -count=1 -run '^Test(Contract.*|Examples|HealthExample|ErrorExamples|SkillExample)$$' . ./server ./cmd/parley
	@echo "TABLE|examples|-|openapi.yaml: $$(grep -c ' operationId:' openapi.yaml) operations told as one story, errors provoked|0"

chain: build postgres conformance/chain/node_modules ## The official clients and facilitator, and a real EVM node, around `parley serve`
	go build -o $(BIN)/chain-postgres ./conformance/chain/postgres
	cd conformance/chain && PARLEY=../../$(BIN)/parley POSTGRES=../../$(BIN)/chain-postgres node chain.mjs

conformance/node_modules: conformance/package.json conformance/package-lock.json | node
	cd conformance && npm ci --no-audit --no-fund && touch node_modules

# anvil's package is for Linux on amd64 and asks for Node 20, which its program does not use: hence --force. On other
# machines set ANVIL to an anvil of their own. None of the packages needs its install scripts.
conformance/chain/node_modules: conformance/chain/package.json conformance/chain/package-lock.json | node
	cd conformance/chain && npm ci --force --ignore-scripts --no-audit --no-fund && touch node_modules

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

# Node and curl likewise.
node:
	@packages=""; command -v npm >/dev/null || packages="nodejs npm"; command -v curl >/dev/null || packages="$$packages curl ca-certificates"; \
	if [ -n "$$packages" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing Debian's packages $$packages"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$packages >/dev/null; \
	fi

.PHONY: help demo dev test generate build lint contract breaking release-contract npm skill snippets chain in-step fuzz plans attack attacked check postgres node
