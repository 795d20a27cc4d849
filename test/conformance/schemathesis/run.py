"""Runs schemathesis with every check against the server that test/conformance/live started.

    go run ./test/conformance/live bin/parley bin/schemathesis/bin/python test/conformance/schemathesis/run.py

Exits with 0 only if nothing failed, at least CASES requests were generated, and every operation returned 200.
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

SEED = 20261121
CASES = int(os.environ.get("SCHEMATHESIS_CASES", 10_000))

program = pathlib.Path(sys.executable).with_name("schemathesis")
with tempfile.TemporaryDirectory() as folder:
    report = pathlib.Path(folder, "report.json")
    arguments = [
        "--config-file=schemathesis.toml", "run", f"{os.environ['PARLEY_URL']}/openapi.json", "--phases=examples,coverage,fuzzing",
        # 1,600 cases do not depend on --max-examples; it is for each of the 41 operations.
        f"--max-examples={max(1, round((CASES - 1_600) / 41))}",
        "--checks=all", f"--seed={SEED}", "--workers=1", "--no-color", f"--report-json-path={report}",
    ]
    print("schemathesis", shlex.join(arguments), flush=True)
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": "hooks.py", "HYPOTHESIS_STORAGE_DIRECTORY": folder, "PYTHONDONTWRITEBYTECODE": "1",
    }
    failed = subprocess.run([program, *arguments], cwd=pathlib.Path(__file__).parent, env=environment).returncode != 0
    if not report.exists():
        sys.exit("schemathesis did not run to its end")
    said = json.loads(report.read_text())
cases, operations = said["test_cases"]["generated"], said["operations"]["total"]
if failed or not said["complete"] or said["failures"] or said["errors"]:
    sys.exit("schemathesis found failures, see above")
reached = {operation: sum(phase["accepted"] for phase in phases.values()) for operation, phases in said["valid_rates"].items()}
never = sorted(operation for operation, accepted in reached.items() if accepted == 0)
if never or len(reached) < operations:
    sys.exit(f"never returned 200: {never}; {len(reached)} of {operations} operations were tried")
if cases < CASES:
    sys.exit(f"{cases} cases are fewer than {CASES}")
print(f"seed {SEED}: {cases} cases, no failure; each of the {operations} operations returned 200")
checked = f"{cases} generated requests to {operations} operations, paid, all checks, seed {SEED}"
print(f"TABLE|schemathesis|{said['schemathesis_version']}|{checked}|0")
