"""Diagrams of a machine: Mermaid, Graphviz DOT, a Markdown table, and an SVG drawn here.

All four are pure functions of a description, so the command line, the server, the documentation and tests can draw it.
They never fail on a valid description, with any characters in its names.
"""

from interlock.core.diagrams.markup import dot, mermaid, table
from interlock.core.diagrams.svg import svg

__all__ = ["dot", "mermaid", "svg", "table"]
