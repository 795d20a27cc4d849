"""Reads a contract with Python libraries, and prints what each of them read as JSON.

    python readers.py openapi.yaml
"""

import json
import sys
from pathlib import Path

from openapi_spec_validator import validate
from openapi_spec_validator.readers import read_from_filename
from ruamel.yaml import YAML

path = Path(sys.argv[1])
document, _ = read_from_filename(str(path))
validate(document)
print(json.dumps({"openapi-spec-validator": document, "ruamel.yaml": YAML(typ="safe", pure=True).load(path)}))
