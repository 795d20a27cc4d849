"""The journey through OpenAI Agents: each call is the invocation of a FunctionTool with the JSON that a model wrote."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agents import Agent
from agents.mcp import MCPServerStdio
from agents.run_context import RunContextWrapper
from agents.tool_context import ToolContext
from journey import Call, journey


def parley_server(home: str) -> MCPServerStdio:
    parameters = {"command": "parley", "args": ["mcp"], "env": {"PARLEY_HOME": home}}
    return MCPServerStdio(parameters, name="parley", cache_tools_list=True, client_session_timeout_seconds=60)


@asynccontextmanager
async def connect(home: str) -> AsyncIterator[tuple[set[str], Call]]:
    async with parley_server(home) as server:
        agent = Agent(name="assistant", instructions="Answer messages.", mcp_servers=[server])
        tools = {tool.name: tool for tool in await agent.get_mcp_tools(RunContextWrapper(None))}

        async def call(name: str, arguments: dict) -> str:
            written = json.dumps(arguments)
            context = ToolContext(None, tool_name=name, tool_call_id="1", tool_arguments=written)
            return text_of(await tools[name].on_invoke_tool(context, written))

        yield set(tools), call


def text_of(output: object) -> str:
    if isinstance(output, dict):
        return output["text"]
    return str(output)


asyncio.run(journey(connect, __file__, "openai-agents", "agents"))
