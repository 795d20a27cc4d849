"""Official Python clients (x402, httpx) that another program drives: one JSON object per line in, one out, in the same order.

start   makes a client for a wallet, with the schemes batch-settlement and exact, or one of them; the state of its payment channel is in memory
call    sends a request, which the client pays
refund  asks for a refund
"""

import asyncio
import base64
import json
import sys
from typing import Any

import httpx
from eth_account import Account
from x402 import x402Client
from x402.http import decode_payment_response_header
from x402.http.clients.httpx import x402_httpx_transport
from x402.mechanisms.evm import EthAccountSigner
from x402.mechanisms.evm.batch_settlement.client import BatchSettlementEvmScheme, RefundOptions
from x402.mechanisms.evm.exact import register_exact_evm_client
from x402.mechanisms.evm.signers import EthAccountSignerWithRPC

NETWORK = "eip155:84532"


class Watched(httpx.AsyncHTTPTransport):
    """Notes what each request pays with."""

    def __init__(self) -> None:
        super().__init__()
        self.payments: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if header := request.headers.get("PAYMENT-SIGNATURE"):
            payment = json.loads(base64.b64decode(header))
            self.payments.append(payment["payload"].get("type", payment["accepted"]["scheme"]))
        return await super().handle_async_request(request)


class Client:
    def __init__(self, key: str, rpc: str | None = None, exactOnly: bool = False, channelsOnly: bool = False) -> None:
        account = Account.from_key(key)
        signer = EthAccountSignerWithRPC(account, rpc) if rpc else EthAccountSigner(account)
        payer = x402Client()
        self.scheme = BatchSettlementEvmScheme(signer)
        if not exactOnly:
            payer.register(NETWORK, self.scheme)
        if not channelsOnly:
            register_exact_evm_client(payer, signer, networks=NETWORK)
        self.watched = Watched()
        self.http = httpx.AsyncClient(transport=x402_httpx_transport(payer, self.watched), timeout=60)

    async def call(self, method: str, url: str, headers: dict[str, str], body: Any = None) -> dict[str, Any]:
        self.watched.payments = []
        try:
            response = await self.http.request(method, url, headers=headers, json=body)
        except Exception as error:
            return {"error": repr(error), "payments": self.watched.payments}
        receipt = response.headers.get("PAYMENT-RESPONSE")
        return {
            "status": response.status_code,
            "reply": response.json(),
            "receipt": receipt and decode_payment_response_header(receipt).model_dump(by_alias=True),
            "payments": self.watched.payments,
        }

    async def refund(self, url: str, amount: str | None = None) -> dict[str, Any]:
        return (await asyncio.to_thread(self.scheme.refund, url, RefundOptions(amount=amount))).model_dump(by_alias=True)


async def main() -> None:
    clients: dict[str, Client] = {}
    for line in sys.stdin:
        command = json.loads(line)
        name, do, arguments = command["client"], command["do"], command["arguments"]
        try:
            if do == "start":
                clients[name] = Client(**arguments)
            reply = {"result": None if do == "start" else await getattr(clients[name], do)(**arguments)}
        except Exception as error:
            reply = {"failed": repr(error)}
        print(json.dumps(reply), flush=True)


asyncio.run(main())
