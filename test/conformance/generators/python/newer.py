"""Values and fields of a newer server do not break the clients of OpenAPI Generator and of datamodel-code-generator. A charge that nobody
knows yet is not a False."""

import json
from pathlib import Path

import models
from parley.models.block_agent_request import BlockAgentRequest
from parley.models.parley_error import ParleyError
from parley.models.unread_page import UnreadPage

newer = json.loads(Path("test/conformance/newer.json").read_text())
for read_error, read_unread in (
    (ParleyError.from_dict, UnreadPage.from_dict),
    (models.ParleyError.model_validate, models.UnreadPage.model_validate),
):
    error = read_error(newer["error"])
    assert error and (error.code, error.charged) == ("code_of_a_newer_server", None), error
    unread = read_unread(newer["unread"])
    assert unread and unread.notices[0].type == "type_of_a_newer_server", unread
    assert unread.messages[0].about and unread.messages[0].about.type == "type_of_a_newer_server", unread

# mypy does not see this client: the generator leaves the import of List out of 29 of its files.
assert BlockAgentRequest(agent_id="agent_01k70t995eeeqsqssjfq4h8qx8").to_dict() == {"agent_id": "agent_01k70t995eeeqsqssjfq4h8qx8"}
