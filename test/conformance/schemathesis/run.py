"""Runs schemathesis with every phase and every check against the server that test/conformance/live started.

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
import urllib.request

import yaml

SEED = 20261121
CASES = int(os.environ.get("SCHEMATHESIS_CASES", 10_000))
# Two runs against one server. The first has a fixed number of cases. In the second, Hypothesis stops following links when a repeated
# request gets another response, because the server has state. schemathesis then starts again within --max-time, so the time is
# fixed and the number of cases is not.
RUNS = [
    # 1,600 cases do not depend on --max-examples; it is for each of the 41 operations.
    ["--phases=examples,coverage,fuzzing", f"--max-examples={max(1, round((CASES - 1_600) / 41))}"],
    ["--phases=stateful", "--max-examples=100", f"--max-time={os.environ.get('SCHEMATHESIS_LINKS', 45)}"],
]

here = pathlib.Path(__file__).parent


def contract():
    """Returns the served contract with the links of links.yaml."""
    with urllib.request.urlopen(os.environ["PARLEY_URL"] + "/openapi.json") as response:
        document = json.load(response)
    operations = {operation["operationId"]: operation for path in document["paths"].values() for operation in path.values()}
    for source, links in yaml.safe_load((here / "links.yaml").read_text()).items():
        operations[source]["responses"]["200"]["links"] = {
            target: {"operationId": target, "requestBody": body} for target, body in links.items()
        }
    return document


program = pathlib.Path(sys.executable).with_name("schemathesis")
cases, reached, operations = 0, {}, 0
for options in RUNS:
    with tempfile.TemporaryDirectory() as reports:
        report, document = pathlib.Path(reports, "report.json"), pathlib.Path(reports, "openapi.json")
        document.write_text(json.dumps(contract()))
        arguments = [
            "--config-file=schemathesis.toml", "run", str(document), f"--url={os.environ['PARLEY_URL']}", "--checks=all",
            f"--seed={SEED}", "--workers=1", "--no-color", f"--report-json-path={report}", *options,
        ]
        print("schemathesis", shlex.join(arguments), flush=True)
        environment = os.environ | {
            "SCHEMATHESIS_HOOKS": "hooks.py", "HYPOTHESIS_STORAGE_DIRECTORY": reports, "PYTHONDONTWRITEBYTECODE": "1",
        }
        failed = subprocess.run([program, *arguments], cwd=here, env=environment).returncode != 0
        if not report.exists():
            sys.exit("schemathesis did not run to its end")
        said = json.loads(report.read_text())
    cases += said["test_cases"]["generated"]
    operations = said["operations"]["total"]
    if failed or not said["complete"] or said["failures"] or said["errors"]:
        sys.exit("schemathesis found failures, see above")
    for operation, phases in said["valid_rates"].items():
        reached[operation] = reached.get(operation, 0) + sum(phase["accepted"] for phase in phases.values())

never = sorted(operation for operation, accepted in reached.items() if accepted == 0)
if never or len(reached) < operations:
    print(f"never returned 200: {never}; {len(reached)} of {operations} operations were tried", file=sys.stderr)
if cases < CASES:
    print(f"{cases} cases are fewer than {CASES}", file=sys.stderr)
if never or len(reached) < operations or cases < CASES:
    sys.exit(1)
print(f"seed {SEED}: {cases} cases, no failure; each of the {operations} operations returned 200")
checked = f"{cases} generated requests to {operations} operations, paid, all checks, seed {SEED}"
print(f"TABLE|schemathesis|{said['schemathesis_version']}|{checked}|0")
