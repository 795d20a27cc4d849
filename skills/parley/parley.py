"""One paid call:  python parley.py GET PATH [FIELD]  or  python parley.py POST PATH [JSON] [FIELD]

Prints the response or one field of it. Prints an error to standard error and exits with 1. With IDEMPOTENCY_KEY in the environment,
the call is the same one whenever it has the same key, also after its response was printed.

Several processes of one agent may share FOLDER, also with parley.mjs. A file exists for each call, from before its payment is sent
until its response was used. Its name contains the process that works on the call; whoever renames the file takes the call over.
Files are replaced as a whole. A new API key is a new file, and the highest number counts.
"""

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
busy: set[str] = set()  # files of the calls of this process
Request = dict[str, Any]  # id, method, path, body, number (of the key), file; payment, credit, response if there is one
Use = Callable[[Request], object]


def read(name: str) -> Any:
    """Returns None if the file does not exist."""
    with suppress(FileNotFoundError):
        return json.loads((FOLDER / name).read_text("utf-8"))


def if_present(action: Callable[..., Any], *arguments: object) -> bool:
    try:
        action(*arguments)
    except FileNotFoundError:
        return False
    return True


def remove(name: str) -> bool:
    return if_present(os.unlink, FOLDER / name)


def rename(old: str, new: str) -> bool:
    return if_present(os.replace, FOLDER / old, FOLDER / new)


def touch(name: str) -> bool:
    return if_present(os.utime, FOLDER / name)


def age(name: str) -> float:
    with suppress(FileNotFoundError):
        return time.time() - (FOLDER / name).stat().st_mtime
    return 0


def files(start: str, end: str = ".json") -> list[str]:
    return [name for name in os.listdir(FOLDER) if name.startswith(start) and name.endswith(end)]


def write(name: str, value: object) -> None:
    """A reader sees the old file or the new one, also after a crash."""
    part = f"{name}.{secrets.token_hex(32)}.part"
    with open(os.open(FOLDER / part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    rename(part, name)
    if os.name != "nt":
        folder = os.open(FOLDER, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


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


def drop_payment(request: Request) -> None:
    if request.get("payment") and not remove(request["file"]):
        raise RuntimeError("another process took this call over")
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
        if request.get("payment") and not touch(request["file"]):
            raise RuntimeError("another process took this call over")
        status, headers, result = send(request)
        code = result.get("code")
        last = " ".join(str(part) for part in (status, code, result.get("request_id"), result.get("message")) if part)
        if status in (0, 408, 429) or status >= 500 or code == "payment_in_progress":
            wait(float(headers.get("Retry-After") or 2))  # then send the same request with the same payment
        elif code == "invalid_api_key" and is_replaced(request, wait):
            request["number"] = newest_key()  # the same payment is good with the new key
            if request.get("payment"):
                write(request["file"], request)
        elif status == 402 and signed < 2:  # nothing was charged, so a new payment is safe
            signed += 1
            drop_payment(request)
            request["payment"] = sign(headers, result)
            write(request["file"], request)  # before sending
        elif request.get("payment") and (code == "proof_required" or (request.get("credit") and code == "payment_reused")):
            drop_payment(request)  # after proof_required, a new payment by the same wallet is not charged
        else:
            request["response"] = {"status": status, "result": result}


def is_replaced(request: Request, wait: Callable[[float], None]) -> bool:
    """Tells whether there is a new key, or may be one soon."""
    for _ in range(2):  # twice: a renamed file may be missed once
        for name in files("call-") + files("late-"):
            if name != request["file"] and (read(name) or {}).get("path") == "/agent/rotate_key":
                take_over("", "", "")  # if the process with the new key was killed
                if newest_key() == request["number"]:
                    wait(0.5)
                return True
        time.sleep(0.2)
    return newest_key() > int(request["number"])


def finish(request: Request, use: Use, waits: int) -> Any:
    busy.add(request["file"])
    try:
        pay(request, waits)
        status, result = request["response"]["status"], request["response"]["result"]
        if request.get("payment"):
            write(request["file"], request)
        if result.get("api_key"):
            write(f"key-{request['number'] + 1}.json", result["api_key"])
        # An error with "charged" was paid, then rejected. The payment pays for a corrected request of the same operation.
        if status != 200 and (result.get("charged") or request.get("credit")):
            write(f"credit-{request['id']}{credit_of(request)}", request["payment"])
        use(request)
        return request["response"]
    finally:
        busy.discard(request["file"])


def is_abandoned(name: str) -> bool:
    """Its process ended or did nothing for five minutes: its number may be that of another process now."""
    pid = int(name.split("-")[1])
    if name in busy:
        return False
    if pid in (0, os.getpid()) or age(name) > 300:
        return True
    if os.name == "nt":  # there, kill ends a process
        return False
    with suppress(OSError):
        if ") Z " in Path(f"/proc/{pid}/stat").read_text("utf-8", "replace"):  # killed, and its parent has not noticed
            return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def keep(request: Request) -> None:
    if request["response"]["status"] == 200 and request["path"] != "/agent/rotate_key":  # whose response is kept as a key
        rename(request["file"], f"done-{request['id']}.json")
    else:
        remove(request["file"])


def take_over(method: str, path: str, body: str, job: str = "", use: Use = keep) -> Any:
    """Finishes abandoned calls. Returns the response if one of them is the same call.

    The response of another call (late) is kept for a day (done), because its process may be started again and make it again.
    """
    for name in files("done-") + files("", ".part"):
        if age(name) > DAY:
            remove(name)
    passes = 0
    while passes < 2:  # twice: a file that is renamed while they are listed may be missed
        passes += 1
        for name in files("call-") + files("late-") + files("done-"):
            request = read(name)
            if not request:
                passes = 0  # another process renamed it, maybe to a name that was not listed
                break
            state = name[:4]
            abandoned = state != "done" and is_abandoned(name)
            same = (request["method"], request["path"], request["body"], request["job"]) == (method, path, body, job)
            if not abandoned and (not same or state == "call"):
                continue
            request["file"] = f"{'call' if same else 'late'}-{os.getpid()}-{request['id']}.json"
            if (state == "late" and not abandoned) or not touch(name) or not rename(name, request["file"]):
                time.sleep(0.1)  # another process finishes the call
                passes = 0
                break
            if same:
                return finish(request, use, 30)
            try:
                finish(request, keep, 0)
            except Exception:
                rename(request["file"], f"call-0-{request['id']}.json")  # without a response it stays open
    return None


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

    def done(request: Request) -> None:
        use(request["response"])
        remove(request["file"])

    check(method, path, body)
    late = take_over(method, path, body, job, done)
    if late:
        return late
    id = secrets.token_hex(32)
    request: Request = {"id": id, "method": method, "path": path, "body": body, "job": job, "number": newest_key()}
    request["file"] = f"call-{os.getpid()}-{id}.json"
    for credit in files("credit-", credit_of(request)):
        paid = {**request, "payment": read(credit), "credit": True}
        write(request["file"], paid)
        if remove(credit):
            return finish(paid, done, 30)
        remove(request["file"])  # another process was faster
    return finish(request, done, 30)


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
