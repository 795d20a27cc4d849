"""Parses the C# client: no registry with a C# compiler is at hand, so it is not compiled."""

from pathlib import Path

import tree_sitter_c_sharp
from tree_sitter import Language, Parser

parser = Parser(Language(tree_sitter_c_sharp.language()))
files = sorted(Path("bin/generators/csharp/src").rglob("*.cs"))
assert len(files) > 50, f"{len(files)} files of C#"
broken = [str(file) for file in files if parser.parse(file.read_bytes()).root_node.has_error]
assert not broken, broken
