"""Diagrams of a machine: Mermaid, Graphviz DOT, a Markdown table, and an SVG drawn here.

All four are pure functions of a description, so anything that has one can draw it: the command line, the
server, the documentation, a test. They never fail on a valid description, whatever its names are made of.
"""

from interlock.core.diagrams.dot import dot
from interlock.core.diagrams.mermaid import mermaid
from interlock.core.diagrams.svg import svg
from interlock.core.diagrams.table import table

__all__ = ["dot", "mermaid", "svg", "table"]
