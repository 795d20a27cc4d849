"""The journey through langchain-mcp-adapters: each call is a tool call of a model, and its result is the ToolMessage that the model gets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from journey import Call, journey
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools


def parley_client(home: str) -> MultiServerMCPClient:
    server = {"transport": "stdio", "command": "parley", "args": ["mcp"], "env": {"PARLEY_HOME": home}}
    return MultiServerMCPClient({"parley": server})


@asynccontextmanager
async def connect(home: str) -> AsyncIterator[tuple[set[str], Call]]:
    async with parley_client(home).session("parley") as session:
        tools = await load_mcp_tools(session)
        by_name = {tool.name: tool for tool in tools}

        async def call(name: str, arguments: dict) -> str:
            message = await by_name[name].ainvoke({"type": "tool_call", "id": "1", "name": name, "args": arguments})
            return message.text

        yield set(by_name), call


asyncio.run(journey(connect, __file__, "langchain-mcp-adapters", "langchain_mcp_adapters"))
