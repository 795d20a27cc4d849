"""Two agents use the SDK that openapi-python-client generates, and pay with the official client, x402.

The first response with an API key is lost, and comes again to the same payment with its identifier.

    PYTHONPATH=bin/sdk/python go run ./test/conformance/live bin/parley bin/sdk/python/venv/bin/python test/conformance/sdk/python/journey.py
"""

import asyncio
import json
import os
import re
import secrets
from pathlib import Path
from typing import Any, TypeVar

import httpx
from eth_account import Account
from parley.api.account import get_agent_profile, list_unread_messages
from parley.api.private_chat import list_private_messages, send_private_message
from parley.api.registration import create_account, request_account
from parley.client import AuthenticatedClient, Client
from parley.models import (
    AgentProfile,
    AgentProfileRequest,
    CreateAccountRequest,
    CreateAccountResult,
    ListPrivateMessagesRequest,
    MessagePage,
    ParleyError,
    RequestAccountRequest,
    RequestAccountResult,
    SendPrivateMessageRequest,
    SentPrivateMessage,
    SourceType,
    UnreadPage,
)
from parley.types import UNSET, Response
from x402 import x402Client
from x402.http import decode_payment_response_header
from x402.http.clients.httpx import x402_httpx_transport
from x402.mechanisms.evm import EthAccountSigner
from x402.mechanisms.evm.batch_settlement.client import BatchSettlementEvmScheme
from x402.mechanisms.evm.exact import register_exact_evm_client

URL = os.environ["PARLEY_URL"]
FACILITATOR = os.environ["PARLEY_FACILITATOR"]
PAY_TO = os.environ["PARLEY_PAY_TO"]

CONTENT = "Hello, Bob 👋 — from a generated SDK."
T = TypeVar("T")


def prices() -> dict[str, int]:
    """The price of each paid operation in atomic units, from the served contract: nothing here repeats one."""
    contract = httpx.get(f"{URL}/openapi.json").json()
    return {
        operation["operationId"]: int(operation["x-payment-info"]["protocols"][0]["x402"]["amount"])
        for path in contract["paths"].values()
        for operation in path.values()
        if "x-payment-info" in operation
    }


def received(address: str) -> int:
    """What an address has, and what it claimed from payment channels and was not paid out."""
    account = httpx.get(f"{FACILITATOR}/balances/{address}").json()
    return int(account["balance"]) + int(account["unsettled"])


class Books:
    """Compares the prices of all responses with what the wallets paid and the payee received."""

    def __init__(self, wallets: list[dict[str, str]]) -> None:
        self.prices = prices()
        self.wallets = [wallet["address"] for wallet in wallets]
        self.payee = received(PAY_TO)
        self.before = sum(map(received, self.wallets))
        self.channels: list[BatchSettlementEvmScheme] = []
        self.sum = self.deposits = self.vouchers = 0

    def paid(self, operation: str, kind: type[T], response: Response[ParleyError | T]) -> T:
        """Returns the data of a response, which must be 200 and settled."""
        assert response.status_code == 200, f"{operation}: {response.status_code} {response.content.decode()}"
        settled = decode_payment_response_header(response.headers["PAYMENT-RESPONSE"])
        assert settled.success and settled.extra
        assert settled.extra["chargedAmount"] == str(self.prices[operation]), operation
        if settled.transaction:
            self.deposits += 1
        else:
            self.vouchers += 1
        assert isinstance(response.parsed, kind)
        self.sum += self.prices[operation]
        return response.parsed

    def close(self) -> None:
        """Refunds the payment channels, which claims what was charged, and compares the sums."""
        assert self.sum > 0
        # Each wallet deposits for its account, which costs what the server suggests to deposit, and once for all calls.
        assert self.deposits == 2 * len(self.channels)
        for channels in self.channels:
            assert channels.refund(f"{URL}/agent/me").success
        assert received(PAY_TO) - self.payee == self.sum, "the payee claimed exactly the sum of the prices"
        assert self.before - sum(map(received, self.wallets)) == self.sum, "the wallets paid exactly the sum of the prices"


class PaymentIdentifier:
    """Puts a random payment identifier into each payment: a client extension of x402.

    With the package x402[extensions] append_payment_identifier_to_extensions does the same.
    """

    key = "payment-identifier"
    hooks = None
    transport_hooks = None

    def enrich_payment_payload(self, payment_payload: Any, payment_required: Any) -> Any:
        named = {self.key: {"info": {"required": False, "id": secrets.token_hex(32)}}}
        return payment_payload.model_copy(update={"extensions": {**(payment_payload.extensions or {}), **named}})


class Insisting(httpx.AsyncBaseTransport):
    """Sends a paid request again, with the same payment, when its response is lost or its outcome is open."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self.transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(30):
            try:
                response = await self.transport.handle_async_request(request)
            except httpx.TransportError:
                if "PAYMENT-SIGNATURE" not in request.headers:
                    raise
            else:
                # Of the 409 only payment_in_progress has Retry-After.
                in_progress = response.status_code == 409 and "Retry-After" in response.headers
                if "PAYMENT-SIGNATURE" not in request.headers or not (response.status_code >= 500 or in_progress):
                    return response
                await response.aclose()
            await asyncio.sleep(1)
        return await self.transport.handle_async_request(request)


class Losing(httpx.AsyncHTTPTransport):
    """Loses the first response with an API key."""

    lost = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if Losing.lost or response.status_code != 200 or request.url.path != "/register/create_account":
            return response
        Losing.lost += 1
        await response.aclose()
        raise httpx.ReadError("the response was lost", request=request)


async def register(books: Books, wallet: dict[str, str], username: str) -> AuthenticatedClient:
    """Buys an account. The official transport in the SDK's httpx client pays every 402.

    Both schemes are registered, so it pays with the one that the server offers first, which is batch-settlement.
    """
    payer = x402Client()
    signer = EthAccountSigner(Account.from_key(wallet["private_key"]))
    channels = BatchSettlementEvmScheme(signer)
    payer.register("eip155:*", channels)
    register_exact_evm_client(payer, signer)
    books.channels.append(channels)
    payer.register_extension(PaymentIdentifier())
    paying = {"transport": x402_httpx_transport(payer, Insisting(Losing()))}
    patience = httpx.Timeout(60)  # httpx gives up after 5 seconds, which may be before a payment is settled
    stranger = Client(base_url=URL, timeout=patience, httpx_args=paying)
    reserved = books.paid(
        "requestAccount",
        RequestAccountResult,
        await request_account.asyncio_detailed(client=stranger, body=RequestAccountRequest(requested_username=username)),
    )
    account = CreateAccountRequest(username=username, tan=reserved.tan, description="An agent with a generated SDK.")
    created = books.paid(
        "createAccount", CreateAccountResult, await create_account.asyncio_detailed(client=stranger, body=account)
    )
    return AuthenticatedClient(
        base_url=URL,
        token=created.api_key,
        prefix="",
        auth_header_name="X-API-KEY",
        timeout=patience,
        httpx_args=paying,
    )


async def journey() -> None:
    wallets = httpx.get(f"{FACILITATOR}/accounts").json()
    books = Books(wallets)
    alice = await register(books, wallets[0], "alice")
    bob = await register(books, wallets[1], "bob")

    profile = books.paid(
        "getAgentProfile",
        AgentProfile,
        await get_agent_profile.asyncio_detailed(client=alice, body=AgentProfileRequest(username="bob")),
    )
    letter = SendPrivateMessageRequest(recipient_agent_id=profile.agent_id, content=CONTENT)
    sent = books.paid(
        "sendPrivateMessage",
        SentPrivateMessage,
        await send_private_message.asyncio_detailed(client=alice, body=letter),
    )

    unread = books.paid(
        "listUnreadMessages",
        UnreadPage,
        await list_unread_messages.asyncio_detailed(client=bob, page_size=10, mark_read=True),
    )
    assert unread.total_unread == 1
    assert [(m.message_id, m.sender_username, m.content, m.source_type, m.source_id) for m in unread.messages] == [
        (sent.message_id, "alice", CONTENT, SourceType.PRIVATE_CHAT, sent.chat_id)
    ]
    read = books.paid("listUnreadMessages", UnreadPage, await list_unread_messages.asyncio_detailed(client=bob))
    assert (read.total_unread, read.messages) == (0, [])
    history = books.paid(
        "listPrivateMessages",
        MessagePage,
        await list_private_messages.asyncio_detailed(client=bob, body=ListPrivateMessagesRequest(chat_id=sent.chat_id)),
    )
    assert [message.content for message in history.messages] == [CONTENT]

    letter.recipient_agent_id = re.sub("^agent_.{4}", "agent_0000", profile.agent_id)
    rejected = await send_private_message.asyncio_detailed(client=alice, body=letter)
    assert isinstance(rejected.parsed, ParleyError)
    assert (rejected.status_code, rejected.parsed.code, rejected.parsed.charged) == (404, "agent_not_found", False)

    assert Losing.lost == 1, "the first response with an API key is lost"
    books.close()
    print(
        "openapi-python-client: two agents, a lost API key back, a message read, a refusal; "
        f"{books.deposits} deposits, {books.vouchers} calls paid with a voucher alone; "
        f"the payee claimed {books.sum} atomic units, exactly the prices"
    )


def newer_server() -> None:
    """Values and fields of a newer server do not break the SDK, and an unknown charge is not a False."""
    newer = json.loads(Path("test/conformance/newer.json").read_text())
    error = ParleyError.from_dict(newer["error"])
    assert (error.code, error.charged) == ("code_of_a_newer_server", UNSET)
    unread = UnreadPage.from_dict(newer["unread"])
    assert [notice.type_ for notice in unread.notices] == ["type_of_a_newer_server"]
    assert [message.source_name for message in unread.messages] == ["city_guide"]


newer_server()
asyncio.run(journey())
