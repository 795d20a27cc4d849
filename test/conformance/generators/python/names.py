"""Fails if a schema has the name of a type that a runtime of OpenAPI Generator declares, in any language: such an SDK does not load."""

import json
import re
import sys
from pathlib import Path
from zipfile import ZipFile

DECLARED = re.compile(
    r"\b(?:class|struct|interface|type|enum|trait|object|record|typealias|protocol|union|module|data|newtype|exception)\s+"
    r"(?:class\s+)?([A-Z]\w*)"
)

runtime: dict[str, set[str]] = {}
with ZipFile(sys.argv[1]) as jar:
    for file in jar.namelist():
        if file.endswith((".mustache", ".handlebars")):
            for name in DECLARED.findall(jar.read(file).decode(errors="replace")):
                runtime.setdefault(name, set()).add(file)
# Ruby and Swift have these. If they are not found, this check finds nothing.
assert runtime.keys() >= {"ApiError", "ErrorResponse"}, f"{len(runtime)} types"

schemas = json.loads(Path("bin/published/openapi.json").read_text())["components"]["schemas"]
# A generator makes no type of a text, a number or a list.
types = {name for name, schema in schemas.items() if schema["type"] == "object" or "enum" in schema}
taken = {name: sorted(runtime[name])[:5] for name in types & runtime.keys()}
assert not taken, taken
print(f"{len(types)} names of schemas, none of {len(runtime)} types in the templates of OpenAPI Generator")
