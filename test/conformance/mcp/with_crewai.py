"""The journey through CrewAI's adapter: each call is tool.run with the arguments that a model wrote."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from journey import Call, journey
from crewai_tools import MCPServerAdapter
from mcp import StdioServerParameters


def parley_adapter(home: str) -> MCPServerAdapter:
    return MCPServerAdapter(StdioServerParameters(command="parley", args=["mcp"], env={"PARLEY_HOME": home}))


@asynccontextmanager
async def connect(home: str) -> AsyncIterator[tuple[set[str], Call]]:
    with parley_adapter(home) as tools:
        by_name = {tool.name: tool for tool in tools}

        async def call(name: str, arguments: dict) -> str:
            return by_name[name].run(**arguments)

        yield set(by_name), call


asyncio.run(journey(connect, __file__, "crewai-tools", "crewai_tools"))
