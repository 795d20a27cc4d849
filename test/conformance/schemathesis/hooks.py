"""Payments for schemathesis: every generated request has a new payment by the official x402 client and the API key of an
agent. The agents are registered, with chats, groups and channels, before the first request is generated.

The environment variable SCHEMATHESIS_HOOKS makes schemathesis load this file; test/conformance/live sets the other variables.
"""

import collections
import os
import re
import secrets
import zlib

import requests
import schemathesis
from eth_account import Account
from schemathesis.openapi.checks import RejectedPositiveData
from x402 import x402ClientSync
from x402.http import x402HTTPClientSync
from x402.mechanisms.evm.exact import register_exact_evm_client

URL = os.environ["PARLEY_URL"]


def client(private_key):
    signing = x402ClientSync()
    register_exact_evm_client(signing, Account.from_key(private_key))
    return x402HTTPClientSync(signing)


accounts = requests.get(os.environ["PARLEY_FACILITATOR"] + "/accounts", timeout=30).json()
wallets = [client(account["private_key"]) for account in accounts]


def ask_prices():
    """The price of each paid operation, from its 402, so that a generated request needs only one call."""
    asked = {}
    for path, methods in requests.get(f"{URL}/openapi.json", timeout=30).json()["paths"].items():
        for method, operation in methods.items():
            if "x-payment-info" in operation:
                response = requests.request(method, URL + path, timeout=30)
                assert response.status_code == 402, f"{method} {path}: {response.status_code}, want 402"
                asked[f"{method.upper()} {path}"] = wallets[0].get_payment_required_response(response.headers.get, None)
    return asked


prices = ask_prices()


def payment(wallet, label):
    """Returns the header that pays for one call of an operation."""
    return wallet.encode_payment_signature_header(wallet.create_payment_payload(prices[label]))


class Agent:
    """An account of Parley, and the wallet that registered it."""

    def __init__(self, number):
        self.wallet, self.api_key = wallets[number], None
        name = f"fuzzed_{number}"
        tan = self.post("/register/request_account", requested_username=name)["tan"]
        account = self.post("/register/create_account", username=name, tan=tan, description="Here to be fuzzed.")
        self.api_key = account["api_key"]
        self.id = self.post("/agent/profile", username=name)["agent_id"]

    def post(self, path, **body):
        """Calls a paid operation, which must return 200."""
        headers = payment(self.wallet, f"POST {path}") | ({"X-API-KEY": self.api_key} if self.api_key else {})
        response = requests.post(URL + path, json=body, headers=headers, timeout=60)
        assert response.status_code == 200, f"POST {path}: {response.status_code} {response.text}"
        learn(path, body, response.json())
        return response.json()


# The newest ids from responses, by kind.
known = {kind: collections.deque(maxlen=40) for kind in ("private", "group", "channel", "message")}
IDS = {
    "/chat/private/send": ("private", "chat_id"),
    "/chat/group/create": ("group", "chat_id"),
    "/channel/create": ("channel", "channel_id"),
}
# After these the first agent can do little with a group chat or channel any more.
ENDS = {
    "/chat/group/delete": ("group", "chat_id"),
    "/chat/group/transfer": ("group", "chat_id"),
    "/chat/group/leave": ("group", "chat_id"),
    "/channel/delete": ("channel", "channel_id"),
    "/channel/transfer": ("channel", "channel_id"),
}


def learn(path, body, response):
    """Keeps what the response to a successful call lets later calls refer to."""
    if path in IDS:
        kind, field = IDS[path]
        known[kind].append(response[field])
    if "message_id" in response:
        known["message"].append(response["message_id"])
    if path in ENDS:
        kind, field = ENDS[path]
        if body[field] in known[kind]:
            known[kind].remove(body[field])


# The first agent makes most of the calls, so that it can use what it creates. The second only replaces its key: each
# call of that makes the old key worthless. Because no request names it, nobody ever blocks or bans it. The others look on.
FIRST, ROTATING, *OTHERS = [Agent(number) for number in range(len(wallets))]
AGENT_IDS = [agent.id for agent in (FIRST, *OTHERS)]


def group(admin=FIRST, members=(ROTATING,)):
    """A new group chat."""
    ids = [member.id for member in members]
    created = admin.post("/chat/group/create", name="Fuzzed group", is_discoverable=True, initial_member_ids=ids)
    return created["chat_id"]


def channel(admin=FIRST):
    """A new channel."""
    return admin.post("/channel/create", name="Fuzzed channel", description="News")["channel_id"]


def furnish():
    """Gives the first agent private chats, and a group chat and a channel of its own and of another."""
    for other in OTHERS:
        FIRST.post("/chat/private/send", recipient_agent_id=other.id, content="Are you well?")
        response = other.post("/chat/private/send", recipient_agent_id=FIRST.id, content="Quite well, and you?")
        FIRST.post("/message/react", message_id=response["message_id"], emoji="👍")
    for admin, readers in ((FIRST, OTHERS), (OTHERS[0], [FIRST, *OTHERS[1:]])):
        admin.post("/chat/group/send", chat_id=group(admin, readers), content="A message for every member")
        news = channel(admin)
        admin.post("/channel/send", channel_id=news, content="A message for every subscriber")
        for reader in readers:
            reader.post("/channel/subscribe", channel_id=news)


furnish()


def dice(*values):
    """A number that depends on nothing but the values: the same request always has the same caller and payer."""
    return zlib.crc32(repr(values).encode())


def is_example(case):
    """Whether a request is an example of the contract. Each returns 200, so that no operation is refused all the time by chance."""
    return case.meta.phase.name.value == "examples"


@schemathesis.auth(refresh_interval=None)
class Key:
    """The caller's API key. Because it is given as auth, schemathesis removes it where it expects a 401."""

    def get(self, case, context):
        if case.operation.path == "/agent/rotate_key":
            return ROTATING.api_key
        if is_example(case):
            return FIRST.api_key
        thrown = dice(case.operation.label, case.body, case.query)
        return (FIRST if thrown % 8 else OTHERS[thrown // 8 % len(OTHERS)]).api_key

    def set(self, case, data, context):
        case.headers["X-API-KEY"] = data


ID = re.compile(r"(agent|chat|channel|msg)_[0-7][0-9a-hjkmnp-tv-z]{25}")
EMOJI = ["👍", "👎🏿", "❤️", "🇵🇹", "5️⃣", "👩‍👩‍👧‍👦", "🏴󠁧󠁢󠁷󠁬󠁳󠁿", "🫠"]


class Furnisher:
    """Replaces the ids that schemathesis made up for one request by real ones of the same kind, but for one in eight.

    An id stays an id and all else stays as it was, so a request keeps to the contract, or breaks it, as before. In an example
    every id is replaced, and group chats and channels are new: the caller's, or another's where access is requested.
    """

    def __init__(self, case):
        self.path, self.example, self.chosen = case.operation.path, is_example(case), {}

    def furnish(self, value):
        if isinstance(value, dict):
            return {name: self.furnish(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.furnish(inner) for inner in value]
        if not isinstance(value, str) or not (kind := ID.fullmatch(value)) or not self.example and dice(value) % 8 == 0:
            return value
        if value not in self.chosen:
            real = self.candidates(kind[1])
            start = dice(value) // 8 % len(real)
            turned = real[start:] + real[:start]
            # Two ids of one request become two different ones.
            self.chosen[value] = value if value in real else next((id for id in turned if id not in self.chosen.values()), turned[0])
        return self.chosen[value]

    def candidates(self, kind):
        """The real ids of a kind that stand in the contract's pattern of ids."""
        if kind == "agent":
            return AGENT_IDS
        kind = {"msg": "message", "chat": "private" if self.path.startswith("/chat/private/") else "group"}.get(kind, kind)
        make = {"group": group, "channel": channel}.get(kind)
        if self.example and make:
            return [make(OTHERS[0] if self.path.endswith("/request_access") else FIRST)]
        if make and len(known[kind]) < 4:
            make()
        return list(known[kind])


def reserved():
    """A username and its TAN."""
    name = f"reserved_{secrets.token_hex(8)}"
    return name, FIRST.post("/register/request_account", requested_username=name)["tan"]


def posted():
    """A group chat of the first agent and a message in it."""
    chat = group()
    return chat, FIRST.post("/chat/group/send", chat_id=chat, content="Pin me")["message_id"]


def inherited():
    """A group chat of the first agent and another member."""
    return group(), ROTATING.id


# What is good only together, and only once.
PAIRS = {
    "/register/create_account": (reserved, "username", "tan"),
    "/chat/group/pin": (posted, "chat_id", "message_id"),
    "/chat/group/transfer": (inherited, "chat_id", "new_admin_agent_id"),
    "/chat/group/leave": (inherited, "chat_id", "successor_agent_id"),
}
FORMS = {"username": "[a-z0-9_]{1,32}", "tan": "(?s:.{1,32})", "emoji": "(?s:.{1,32})"}


def well_formed(body, fields):
    """Whether the fields are what the contract wants, so that other such values change nothing about the request."""
    return all(isinstance(body.get(name), str) and re.fullmatch(FORMS.get(name, ID), body[name]) for name in fields)


@schemathesis.hook
def before_call(context, case, kwargs):
    label, path = case.operation.label, case.operation.path
    wait = str((case.query or {}).get("wait", ""))
    if wait.isdecimal() and 1 < int(wait) <= 60:
        case.query["wait"] = 1  # a generated request needs no more, and gives up after ten seconds
    if isinstance(case.body, dict):
        body = Furnisher(case).furnish(case.body)
        make, *fields = PAIRS.get(path, [None])
        if make and (is_example(case) or dice(body) % 8) and well_formed(body, fields):
            body |= zip(fields, make())
        if path == "/message/react" and well_formed(body, ["emoji"]) and dice(body) % 8:
            body["emoji"] = EMOJI[dice(body) // 8 % len(EMOJI)]
        if body != case.body:
            case.body = body
    if label in prices:
        case.headers.update(payment(wallets[dice(label, case.body) % len(wallets)], label))


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code != 200:
        return
    if case.operation.path == "/agent/rotate_key":
        ROTATING.api_key = response.json()["api_key"]
    if isinstance(case.body, dict):
        learn(case.operation.path, case.body, response.json())


# Rules that JSON Schema cannot express: the only reasons for which a request that matches the schemas may return 400. They are
# listed by operation, so any other 400 is a failure.
RULES = {
    "this is no cursor of a page of this account, or it is damaged; send the cursor of a response unchanged, or begin with "
    "mark_read=false": ["GET /agent/unread"],
    "skips more than 1000 messages, which is (page - 1) * page_size; confirm earlier messages with read_through, or read them with "
    "mark_read true, and ask for page 1": ["GET /agent/unread"],
    "you cannot send messages to yourself": ["POST /chat/private/send"],
    "you cannot block yourself": ["POST /agent/block"],
    "you are already the admin; choose another agent":
        ["POST /channel/transfer", "POST /chat/group/transfer", "POST /chat/group/leave"],
    "the same agent is in two lists; remove it from one": ["POST /chat/group/edit", "POST /channel/edit"],
    "the query has no word; send a letter, a digit, or a symbol such as $ or an emoji: punctuation alone finds nothing":
        ["POST /search/agents", "POST /search/groups", "POST /search/channels"],
    "the query matches nearly every message; send a word, or an expression that requires one":
        ["POST /chat/private/search", "POST /chat/group/search", "POST /channel/search"],
    "the expression is too complex; use fewer or smaller repetitions, or write \\{ to search for a brace":
        ["POST /chat/private/search", "POST /chat/group/search", "POST /channel/search"],
    "transfer_message is the note of a leaving admin to the successor, and you are not the admin; leave it out, and write to the "
    "group chat before you leave": ["POST /chat/group/leave"],
    "the admin must name a successor before leaving; set successor_agent_id to another current member":
        ["POST /chat/group/leave"],
}


# What x-text asks of texts, by field: the begin of the message.
VISIBLE = "must have a visible character"
INVISIBLE = "must not have U+"
TEXT_RULES = {
    "/content": (VISIBLE,),
    "/name": (VISIBLE, INVISIBLE, "must not have control characters or line breaks; remove them"),
    "/description": (VISIBLE, INVISIBLE, "must not have control characters except tabs and line breaks; remove them"),
    "/emoji": ("must be exactly one emoji, such as ",),
}


def is_rule(operation, detail):
    """Whether a detail of a 400 tells a rule that the schemas do not express."""
    message = re.sub(": agent_.*", "", detail["message"])  # the ids that it names
    return operation in RULES.get(message, []) or message.startswith(TEXT_RULES.get(detail["field"], ()))


@schemathesis.hook
def filter_failure(context, failure, case, response):
    if not isinstance(failure, RejectedPositiveData) or response.status_code != 400:
        return True
    details = response.json()["details"]
    return not details or not all(is_rule(case.operation.label, detail) for detail in details)
