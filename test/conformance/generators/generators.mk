# SDKs and MCP servers that other generators make of the published contract. Each is compiled or loaded, and reads
# test/conformance/newer.json, responses of a newer server. docs/sdk.md has the table of generators.

GENERATORS := test/conformance/generators
GENERATED := $(BIN)/generators
GENERATORS_BIN := $(GENERATORS)/node_modules/.bin
GENERATORS_VENV := $(BIN)/generators-venv
NEWER := reads responses of a newer server
TOOLS := an MCP server has a tool for each operation, with price and described parameters

GENERATORS_NODE := $(CURDIR)/$(GENERATORS)/node_modules/node-linux
generators: export PATH := $(GENERATORS_NODE)-x64/bin:$(GENERATORS_NODE)-arm64/bin:$(PATH)
generators: $(PUBLISHED) $(OPENAPI_GENERATOR_JAR) $(GENERATORS)/node_modules $(GENERATORS_VENV)
generators: debian-generators #: Generate SDKs and MCP servers with other generators, compile or load them
	rm -rf $(GENERATED)
	@$(MAKE) --no-print-directory -j2 --output-sync=target $(addprefix generated-,cpp go kotlin typescript python php ruby)

# The languages are checked in parallel, but apt-get runs only once at a time.
debian-generators:
	@$(call install,g++ -E -x c++ -include cpprest/json.h /dev/null,g++ libcpprest-dev libssl-dev)
	@$(call install,ruby -e 'require "typhoeus"',ruby ruby-typhoeus)
	@$(call install,php -r 'require "GuzzleHttp/autoload.php"; mb_strlen("") + curl_version()["age"];',\
	  php-cli php-curl php-mbstring php-guzzlehttp-guzzle)

# Only the direct dependencies are pinned: these tools run at night and are part of nothing that is published.
$(GENERATORS)/node_modules: $(GENERATORS)/package.json | node
	cd $(GENERATORS) && npm install --loglevel=error --no-audit --no-fund && touch node_modules

$(GENERATORS_VENV): $(GENERATORS)/requirements.txt
	$(call venv,--only-binary :all:)

# OpenAPI Generator makes all its clients in one run.
$(GENERATED)/batch: $(wildcard $(GENERATORS)/openapi-generator/*.yaml)
	java -jar $(OPENAPI_GENERATOR_JAR) batch --fail-fast -r 2 $^ $(call log,generators)
	touch $@

# $(call generated,LANGUAGE,CHECKED) prints the result for a client of OpenAPI Generator.
generated = @echo 'TABLE|openapi-generator ($(1))|$(OPENAPI_GENERATOR)|$(2)|0'

# The files that name a function toEnum do not compile together with each other.
generated-cpp: $(GENERATED)/batch
	sed -i "s/ = nullptr;/ = {};/" $(GENERATED)/cpp/src/model/*.cpp # a std::string from nullptr crashes
	cd $(GENERATED)/cpp && grep -rL toEnum src | sed 's/.*/#include "&"/' >together.cpp
	cd $(GENERATED)/cpp && g++ -std=c++17 -Iinclude -Iinclude/Parley -I. -o newer $(CURDIR)/$(GENERATORS)/cpp/newer.cpp \
	  together.cpp $$(grep -rl toEnum src) -lcpprest -lboost_system -lssl -lcrypto -lpthread
	$(GENERATED)/cpp/newer
	$(call generated,C++ cpp-restsdk,a client compiles and $(NEWER))

generated-go: $(GENERATED)/batch
	cp $(GENERATORS)/go/* $(GENERATED)/go
	(cd $(GENERATED)/go && go tool ogen --config ogen.yml --target ogen --package ogen $(CURDIR)/$(PUBLISHED)) $(call log,ogen)
	cd $(GENERATED)/go && go run . $(CURDIR)/test/conformance/newer.json
	$(call generated,Go,a client compiles and $(NEWER))
	@cd $(GENERATED)/go && go list -m -f 'TABLE|ogen|{{.Version}}|a client compiles and $(NEWER)|0' github.com/ogen-go/ogen

generated-kotlin: $(GENERATED)/batch
	mvn -B -q -f $(GENERATORS)/kotlin process-classes $(call log,kotlin-mvn)
	$(call generated,Kotlin,a client compiles and $(NEWER))

generated-php: $(GENERATED)/batch
	php $(GENERATORS)/php/newer.php
	$(call generated,PHP,all files of a client load; it $(NEWER))

generated-ruby: $(GENERATED)/batch
	ruby -I $(GENERATED)/ruby/lib $(GENERATORS)/ruby/newer.rb
	$(call generated,Ruby,all files of a client load; it $(NEWER))

# There is no C# compiler among the packages, so the C# client is only parsed.
PYTHON_CHECKS := $(GENERATORS)/python
generated-python: $(GENERATED)/batch
	$(GENERATORS_VENV)/bin/datamodel-codegen --input $(PUBLISHED) --input-file-type openapi --output $(GENERATED)/python/models.py \
	  --output-model-type pydantic_v2.BaseModel --target-python-version 3.11 --use-annotated --collapse-root-models --formatters builtin
	MYPYPATH=$(GENERATED)/python $(GENERATORS_VENV)/bin/mypy --strict --follow-imports=silent --cache-dir $(GENERATED)/python/mypy \
	  $(GENERATED)/python/models.py $(PYTHON_CHECKS)/*.py
	PYTHONPATH=$(GENERATED)/python $(GENERATORS_VENV)/bin/python $(PYTHON_CHECKS)/newer.py
	$(GENERATORS_VENV)/bin/python $(PYTHON_CHECKS)/tools.py
	$(GENERATORS_VENV)/bin/python $(PYTHON_CHECKS)/csharp.py
	$(GENERATORS_VENV)/bin/python $(PYTHON_CHECKS)/names.py $(OPENAPI_GENERATOR_JAR)
	$(call generated,all,no schema has the name of a type in a template)
	$(call generated,C#,a client; parsed but not compiled)
	$(call generated,Python,a client loads and $(NEWER))
	@$(GENERATORS_VENV)/bin/python -c "from importlib.metadata import version as of; \
	  row = lambda tool, checked: print('TABLE', tool, of(tool), checked, 0, sep='|'); \
	  row('datamodel-code-generator', f'models: types by mypy --strict {of(\"mypy\")}; the code $(NEWER)'); \
	  row('fastmcp', '$(TOOLS)')"

GENERATED_TS := $(GENERATED)/typescript
generated-typescript: $(GENERATED)/batch
	ln -s $(CURDIR)/$(GENERATORS)/node_modules $(GENERATED_TS)/node_modules
	$(GENERATORS_BIN)/orval --input $(PUBLISHED) --output $(GENERATED_TS)/orval/index.ts --client fetch
	$(GENERATORS_BIN)/kubb generate --config $(GENERATORS)/typescript/kubb.config.ts $(call log,kubb)
	$(GENERATORS_BIN)/openapi --input $(PUBLISHED) --output $(GENERATED_TS)/openapi-typescript-codegen
	$(GENERATORS_BIN)/openapi-mcp-generator --input $(PUBLISHED) --output $(GENERATED_TS)/openapi-mcp-generator $(call log,mcp)
	$(GENERATORS_BIN)/tsc -p $(GENERATORS)/typescript
	$(GENERATORS_BIN)/esbuild newer=$(GENERATORS)/typescript/newer.ts mcp=$(GENERATORS)/typescript/mcp.ts \
	  server=$(GENERATED_TS)/openapi-mcp-generator/src/index.ts --bundle --packages=external --platform=node --format=esm \
	  --outdir=$(GENERATED_TS)/js --out-extension:.js=.mjs --log-level=warning --log-override:direct-eval=silent
	node $(GENERATED_TS)/js/newer.mjs
	node $(GENERATED_TS)/js/mcp.mjs
	$(call generated,TypeScript fetch,a client: types by tsc; it $(NEWER))
	@node -p "const d = require('./$(GENERATORS)/package.json').dependencies, row = (tool, checked) => ['TABLE', tool, d[tool], checked, 0].join('|'); \
	  [...['orval', '@kubb/core', 'openapi-typescript-codegen'].map((tool) => row(tool, 'a client: types by tsc ' + d.typescript)), \
	   row('openapi-mcp-generator', '$(TOOLS)')].join('\n')"

.PHONY: generators debian-generators $(addprefix generated-,cpp go kotlin typescript python php ruby)
