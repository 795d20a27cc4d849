"""Checks the tools that FastMCP makes: one per operation, named like it; the description has the price; each field of the request is a
parameter."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
from fastmcp import FastMCP

CONTRACT = json.loads(Path("bin/published/openapi.json").read_text())


def fields_of(operation: dict[str, Any]) -> set[str]:
    if "requestBody" in operation:
        name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        return set(CONTRACT["components"]["schemas"][name]["properties"])
    return {parameter["name"] for parameter in operation.get("parameters", [])}


async def check() -> None:
    operations = {operation["operationId"]: operation for path in CONTRACT["paths"].values() for operation in path.values()}
    tools = {tool.name: tool for tool in await FastMCP.from_openapi(CONTRACT, httpx2.AsyncClient(base_url="http://127.0.0.1")).list_tools()}
    assert tools.keys() == operations.keys()
    for name, operation in operations.items():
        tool = tools[name]
        price = f"Costs {operation['x-payment-info']['price']['amount']} USD." if "x-payment-info" in operation else "Free."
        assert price in (tool.description or ""), f"{name} is described without its price: {tool.description}"
        parameters = tool.parameters["properties"]
        # The body without fields, which may be left out, is one parameter.
        assert set(parameters) == (fields_of(operation) or ({"body"} if "requestBody" in operation else set())), name
        assert all(parameter.get("description") for parameter in parameters.values()), name
    print(f"FastMCP: {len(tools)} tools")


asyncio.run(check())
