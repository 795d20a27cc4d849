"""Values and fields of a newer server do not break the clients of OpenAPI Generator and of datamodel-code-generator. A charge that nobody
knows yet is not a False."""

import json
from pathlib import Path

import models
from parley.models.parley_error import ParleyError
from parley.models.unread_page import UnreadPage

newer = json.loads(Path("conformance/newer.json").read_text())
for Error, Unread in ((ParleyError, UnreadPage), (models.ParleyError, models.UnreadPage)):
    error = Error.model_validate(newer["error"])
    assert (error.code, error.charged) == ("code_of_a_newer_server", None), error
    unread = Unread.model_validate(newer["unread"])
    assert unread.notices[0].type == "type_of_a_newer_server", unread
    assert unread.messages[0].about and unread.messages[0].about.type == "type_of_a_newer_server", unread
