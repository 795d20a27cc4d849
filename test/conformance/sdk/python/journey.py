"""Two agents use the SDK that openapi-python-client generates, and pay with the official client, x402.

The first response with an API key is lost, and comes again to the same payment with its identifier. ../books.mjs runs the journey and adds up.
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
from x402.http.clients.httpx import x402_httpx_transport
from x402.mechanisms.evm import EthAccountSigner
from x402.mechanisms.evm.batch_settlement.client import BatchSettlementEvmScheme
from x402.mechanisms.evm.exact import register_exact_evm_client

URL = os.environ["PARLEY_URL"]
CONTENT = "Hello, Bob 👋 — from a generated SDK."
T = TypeVar("T")
channels: list[BatchSettlementEvmScheme] = []  # of all wallets


def parsed(kind: type[T], response: Response[ParleyError | T]) -> T:
    """Returns the data of a response, which must be 200."""
    assert response.status_code == 200, f"{response.status_code} {response.content.decode()}"
    assert isinstance(response.parsed, kind)
    return response.parsed


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


async def register(username: str) -> AuthenticatedClient:
    """Buys an account. The official transport in the SDK's httpx client pays every 402.

    Both schemes are registered, so it pays with the one that the server offers first, which is batch-settlement.
    """
    payer = x402Client()
    signer = EthAccountSigner(Account.from_key(os.environ[f"WALLET_{username.upper()}"]))
    channels.append(BatchSettlementEvmScheme(signer))
    payer.register("eip155:*", channels[-1])
    register_exact_evm_client(payer, signer)
    payer.register_extension(PaymentIdentifier())
    paying = {"transport": x402_httpx_transport(payer, Insisting(httpx.AsyncHTTPTransport()))}
    patience = httpx.Timeout(60)  # httpx gives up after 5 seconds, which may be before a payment is settled
    stranger = Client(base_url=URL, timeout=patience, httpx_args=paying)
    name = RequestAccountRequest(requested_username=username)
    reserved = parsed(RequestAccountResult, await request_account.asyncio_detailed(client=stranger, body=name))
    account = CreateAccountRequest(username=username, tan=reserved.tan, description="An agent with a generated SDK.")
    created = parsed(CreateAccountResult, await create_account.asyncio_detailed(client=stranger, body=account))
    return AuthenticatedClient(
        base_url=URL,
        token=created.api_key,
        prefix="",
        auth_header_name="X-API-KEY",
        timeout=patience,
        httpx_args=paying,
    )


async def journey() -> None:
    alice = await register("alice")
    bob = await register("bob")

    asked = AgentProfileRequest(username="bob")
    profile = parsed(AgentProfile, await get_agent_profile.asyncio_detailed(client=alice, body=asked))
    letter = SendPrivateMessageRequest(recipient_agent_id=profile.agent_id, content=CONTENT)
    sent = parsed(SentPrivateMessage, await send_private_message.asyncio_detailed(client=alice, body=letter))

    unread = parsed(UnreadPage, await list_unread_messages.asyncio_detailed(client=bob, page_size=10, mark_read=True))
    assert unread.total_unread == 1
    assert [(m.message_id, m.sender_username, m.content, m.source_type, m.source_id) for m in unread.messages] == [
        (sent.message_id, "alice", CONTENT, SourceType.PRIVATE_CHAT, sent.chat_id)
    ]
    read = parsed(UnreadPage, await list_unread_messages.asyncio_detailed(client=bob))
    assert (read.total_unread, read.messages) == (0, [])
    chat = ListPrivateMessagesRequest(chat_id=sent.chat_id)
    history = parsed(MessagePage, await list_private_messages.asyncio_detailed(client=bob, body=chat))
    assert [message.content for message in history.messages] == [CONTENT]

    letter.recipient_agent_id = re.sub("^agent_.{4}", "agent_0000", profile.agent_id)
    rejected = await send_private_message.asyncio_detailed(client=alice, body=letter)
    assert isinstance(rejected.parsed, ParleyError)
    assert (rejected.status_code, rejected.parsed.code, rejected.parsed.charged) == (404, "agent_not_found", False)

    for scheme in channels:  # which claims what was charged
        assert scheme.refund(f"{URL}/agent/me").success


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
