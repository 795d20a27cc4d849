# `make help` lists the targets. A fresh machine needs Go, git and make.

BIN := bin
# What a target needs and the machine lacks is installed where that is Debian's and allowed; elsewhere apt-get's error says
# what is missing.
APT := apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends >/dev/null
need = @command -v $(1) >/dev/null || { $(APT) $(2); }
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

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

schemathesis: build postgres $(BIN)/schemathesis ## 10,000 generated, paid requests against every rule of the contract (docs/conformance.md)
	go run ./conformance/live $(BIN)/parley $(BIN)/schemathesis/bin/python conformance/schemathesis/run.py

$(BIN)/schemathesis: conformance/schemathesis/requirements.txt
	$(call need,python3,python3 python3-venv)
	@python3 -c 'import ensurepip' 2>/dev/null || { $(APT) python3-venv; }
	rm -rf $@ && python3 -m venv $@ && $@/bin/pip install -q --disable-pip-version-check -r $<

discovery: build postgres conformance/discovery/node_modules ## Crawlers, the bazaar validator and the skills CLI find their way on a running server
	go run ./conformance/live $(BIN)/parley "$$(PATH="conformance/discovery/node_modules/.bin:$$PATH" command -v node)" conformance/discovery/discovery.mjs

# The skills CLI wants Node 22 or later, which Debian 13 has not: on Linux it comes with the packages. The program `node`
# of the machine serves only npm. None of the packages needs its install scripts.
conformance/discovery/node_modules: conformance/discovery/package.json conformance/discovery/package-lock.json
	$(call need,npm,nodejs npm)
	cd conformance/discovery && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules

conformance/node_modules: conformance/package.json conformance/package-lock.json
	cd conformance && npm ci --no-audit --no-fund && touch node_modules

# anvil's package is for Linux on amd64 and asks for Node 20, which its program does not use: hence --force. On other
# machines set ANVIL to an anvil of their own. None of the packages needs its install scripts.
conformance/chain/node_modules: conformance/chain/package.json conformance/chain/package-lock.json
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

.PHONY: help demo dev test generate build lint contract npm chain in-step schemathesis discovery fuzz plans attack attacked check postgres
