"""One paid call:  python parley.py GET PATH [FIELD]  or  python parley.py POST PATH [JSON] [FIELD]

Prints the response or one field of it. Prints an error to standard error and exits with 1. With IDEMPOTENCY_KEY in the environment,
the call is the same one whenever it has the same key, also after its response was printed.

Several processes of one agent may share FOLDER. A file exists for each call, from before its payment is sent until its response was
used. Whoever makes the same call meanwhile sends the same payment and gets the same response. Files are replaced as a whole. A new
API key is a new file, and the highest number counts.
"""

import hashlib
import http.client
import json
import os
import re
import secrets
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from eth_account import Account
from x402 import x402ClientSync
from x402.http import x402HTTPClientSync
from x402.mechanisms.evm import EthAccountSigner
from x402.mechanisms.evm.exact import register_exact_evm_client

LIMIT = 1_000_000  # maximum price of a call, in millionths of a dollar
FOLDER = Path("parley-state")  # keep it: it contains your API key and open payments
DAY = 86_400  # seconds
if not re.fullmatch("(0x)?[0-9a-fA-F]{64}", os.environ.get("WALLET_KEY", "")):
    sys.exit("set WALLET_KEY to the private key of the wallet: 0x and 64 hex digits")
wallet = x402ClientSync()
register_exact_evm_client(wallet, EthAccountSigner(Account.from_key(os.environ["WALLET_KEY"])))
x402 = x402HTTPClientSync(wallet)

FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
Request = dict[str, Any]  # method, path, body, job, file, number (of the key); id, payment, credit, response if there is one


def read(name: str) -> Any:
    """Returns None if the file does not exist."""
    with suppress(FileNotFoundError):
        return json.loads((FOLDER / name).read_text("utf-8"))


def remove(name: str) -> None:
    (FOLDER / name).unlink(missing_ok=True)


def rename(old: str, new: str) -> bool:
    """Returns False if the file does not exist."""
    try:
        os.replace(FOLDER / old, FOLDER / new)
    except FileNotFoundError:
        return False
    return True


def age(name: str) -> float:
    with suppress(FileNotFoundError):
        return time.time() - (FOLDER / name).stat().st_mtime
    return 0


def files(start: str, end: str = ".json") -> list[str]:
    return [name for name in os.listdir(FOLDER) if name.startswith(start) and name.endswith(end)]


def write(name: str, value: object, place: Callable[[Path, Path], object] = os.replace) -> None:
    """A reader sees the old file or the new one, also after a crash."""
    part = f"{name}.{secrets.token_hex(32)}.part"
    with open(os.open(FOLDER / part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    place(FOLDER / part, FOLDER / name)
    remove(part)  # if it is not renamed
    if os.name != "nt":
        folder = os.open(FOLDER, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def place_new(part: Path, name: Path) -> None:
    try:
        os.link(part, name)
    except FileExistsError:
        pass
    except OSError:
        os.replace(part, name)  # there are no links here


def text_of(result: object) -> str:
    return json.dumps(result, separators=(",", ":"))


def newest_key() -> int:
    return max((int(name[4:-5]) for name in files("key-")), default=0)


def credit_of(request: Request) -> str:
    return f"-{request['method']}{request['path'].split('?')[0].replace('/', '-')}.json"


def sign(headers: Any, result: Any) -> dict[str, str]:
    required = x402.get_payment_required_response(headers.get, result)
    if any(int(offer.get_amount()) > LIMIT for offer in required.accepts):
        raise RuntimeError("the call costs more than LIMIT")
    payment: Any = x402.create_payment_payload(required)
    # The identifier proves that the payment is yours; keep it secret, like the folder.
    identifier = {"payment-identifier": {"info": {"required": False, "id": secrets.token_hex(32)}}}
    payment.extensions = {**(payment.extensions or {}), **identifier}
    return x402.encode_payment_signature_header(payment)


def is_stored(request: Request) -> bool:
    """Otherwise the file is gone, or that of a later call."""
    return (read(request["file"]) or {}).get("id") == request.get("id")


def store(request: Request) -> None:
    if request.get("payment") and is_stored(request):
        write(request["file"], request)


def forget(request: Request) -> None:
    if is_stored(request):
        remove(request["file"])
    request["payment"] = request["credit"] = None


def send(request: Request) -> tuple[int, Any, Any]:
    """Returns status, headers and result. Without a response, or with an incomplete one, the status is 0 and the result the reason."""
    key = read(f"key-{request['number']}.json")
    headers = {"Content-Type": "application/json"} if request["body"] else {}
    headers |= {"Idempotency-Key": request["job"]} if request.get("job") else {}
    headers |= ({"X-API-KEY": key} if key else {}) | (request.get("payment") or {})
    url, body = os.environ["PARLEY_URL"].rstrip("/") + request["path"], request["body"].encode() or None
    try:
        try:
            response = urllib.request.urlopen(urllib.request.Request(url, body, headers, method=request["method"]), timeout=120)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            return response.status, response.headers, json.loads(response.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        return 0, {}, {"message": f"{type(error).__name__}: {error}"}


def pay(request: Request, waits: int) -> None:
    """Sends the request until it has a response."""
    signed = 0
    last = "none"

    def wait(seconds: float) -> None:
        nonlocal waits
        if waits == 30:
            print(f"no final response yet (the last: {last}); sending the same again for up to a minute", file=sys.stderr, flush=True)
        if waits <= 0:
            raise RuntimeError(f"no final response (the last: {last}); run this again later, it continues with the same payment")
        waits -= 1
        time.sleep(min(60, seconds))

    while not request.get("response"):
        status, headers, result = send(request)
        code = result.get("code")
        last = " ".join(str(part) for part in (status, code, result.get("request_id"), result.get("message")) if part)
        if status in (0, 408, 429) or status >= 500 or code == "payment_in_progress":
            wait(float(headers.get("Retry-After") or 2))  # then send the same request with the same payment
        elif code == "invalid_api_key" and is_replaced(request, wait):
            request["number"] = newest_key()  # the same payment is good with the new key
            store(request)
        elif status == 402 and signed < 2:  # nothing was charged, so a new payment is safe
            signed += 1
            forget(request)
            paid = {**request, "id": secrets.token_hex(32), "payment": sign(headers, result)}
            write(request["file"], paid, place_new)  # before sending
            request |= read(request["file"]) or {}  # of the process that was first
        elif request.get("payment") and (code == "proof_required" or (request.get("credit") and code == "payment_reused")):
            forget(request)  # after proof_required, a new payment by the same wallet is not charged
        else:
            request["response"] = {"status": status, "result": result}


def is_replaced(request: Request, wait: Callable[[float], None]) -> bool:
    """Tells whether there is a new key, or may be one soon."""
    others = [read(name) or {} for name in files("call-") if name != request["file"]]
    rotations = [other for other in others if other.get("path") == "/agent/rotate_key" and other["number"] == request["number"]]
    for rotation in rotations:
        with suppress(Exception):
            settle(rotation, 0)  # its process may have been killed
            forget(rotation)
    if rotations and newest_key() == request["number"]:
        wait(0.5)
    return bool(rotations) or newest_key() > int(request["number"])


def settle(request: Request, waits: int) -> Any:
    """Stores the response and what it contains."""
    pay(request, waits)
    status, result = request["response"]["status"], request["response"]["result"]
    store(request)
    if result.get("api_key"):
        write(f"key-{request['number'] + 1}.json", result["api_key"])
    # An error with "charged" was paid, then rejected. The payment pays for a corrected request of the same operation.
    if status != 200 and (result.get("charged") or request.get("credit")):
        credit = {"id": request["id"], "payment": request["payment"], "credit": True}
        write(f"credit-{request['id']}{credit_of(request)}", credit)
    return request["response"]


def check(method: str, path: str, body: str) -> None:
    """Finds mistakes that no response shows."""
    if not re.match("https?://.", os.environ.get("PARLEY_URL", "")):
        raise ValueError("set PARLEY_URL to the server's address, such as https://parley.example")
    if method not in ("GET", "POST"):
        raise ValueError(f"the method is GET or POST, not {method}")
    if not path.startswith("/"):
        raise ValueError("the path begins with /, such as /agent/me")
    if method == "GET" and body:
        raise ValueError("a GET has no body; put parameters into the path: /agent/unread?page_size=5")


def call(method: str, path: str, body: str = "", use: Callable[[Any], object] = lambda response: None, job: str = "") -> Any:
    """Returns {"status", "result"}. If the process is killed before use ends, the same call gets the response again.

    Calls with the same job (an Idempotency-Key) are one call.
    """
    check(method, path, body)
    for name in files("call-") + files("", ".part"):
        if age(name) > DAY:
            remove(name)
    file = f"call-{hashlib.sha256(text_of([method, path, body, job]).encode()).hexdigest()}.json"
    request: Request = {"method": method, "path": path, "body": body, "job": job, "file": file, "number": newest_key()}
    request |= read(file) or {}
    for credit in files("credit-", credit_of(request)):
        if not request.get("payment") and rename(credit, file):  # otherwise another process was faster
            request |= read(file) or {}
    response = settle(request, 30)
    use(response)
    forget(request)
    return response


def main(arguments: list[str]) -> int:
    if not 2 <= len(arguments) <= 4:
        raise ValueError("usage: python parley.py GET PATH [FIELD] or POST PATH [JSON] [FIELD]")
    method, path, body, field = (*arguments, "", "")[:4]
    if method == "GET" and not field and body.isidentifier():  # a GET has no body
        body, field = "", body
    exit_code = 1

    def show(response: Any) -> None:
        nonlocal exit_code
        result = response["result"]
        if response["status"] == 200 and (not field or field in result):
            hidden = {"api_key": f"(stored in {FOLDER})"} if "api_key" in result else {}
            value = result[field] if field else {**result, **hidden}
            print(value if isinstance(value, str) else text_of(value), flush=True)
            exit_code = 0
            return
        if response["status"] == 200:
            print(f"the response has no field {field}:", file=sys.stderr)
        print(text_of(result), file=sys.stderr, flush=True)

    call(method, path, body, show, os.environ.get("IDEMPOTENCY_KEY", ""))
    return exit_code


if __name__ == "__main__":
    try:
        os._exit(main(sys.argv[1:]))  # at once: a program that is killed after it has printed would be run again
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(str(error) or type(error).__name__)
