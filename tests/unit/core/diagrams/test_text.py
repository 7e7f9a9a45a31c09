"""Mermaid, DOT and Markdown: correct syntax for any names, and everything said.

The grammars are checked by shape: outside of quotes and entities only what the writer itself has written may stand.
"""

import re

import pytest
from hypothesis import given

from interlock.core.describe import MachineDescription
from interlock.core.diagrams import dot, mermaid, table
from interlock.core.diagrams.sketch import duration, text_width, visible
from interlock.core.diagrams.svg import level
from tests.unit.core.diagrams.samples import CHECKOUT, HARD, ORDER, State, Transition, machine, step
from tests.unit.core.diagrams.strategies import machines

ODD = 'a|b "c" <d> & {e}; #f: %%g\n\\h end note'

ODD_MACHINE = machine(
    ODD,
    (State(name=ODD, initial=True, step=step(ODD)), State(name="end", final=True, dwell_max_s=60), State(name="s0")),
    (
        Transition(source=ODD, event=ODD, target="end", guard=ODD, guard_reason=ODD, action=ODD),
        Transition(source="s0", event="", target="s0"),
    ),
)


class TestMermaid:
    def test_it_draws_the_order(self) -> None:
        lines = [line.strip() for line in mermaid(ORDER).splitlines()]
        assert lines[0] == "stateDiagram-v2"
        assert "[*] --> pending" in lines
        assert "cancelled --> [*]" in lines
        assert "pending --> payment_processing: SUBMIT [has_items]" in lines
        assert "payment_processing --> payment_processing: PAYMENT_STARTED" in lines
        assert "step take_payment · 4 s" in lines
        assert "after 24 h → CANCEL" in lines
        assert "dwell at most 2 d" in lines
        assert "class cancelled,refunded finalState" in lines
        assert "class delivered restingState" in lines

    def test_it_marks_unwinding_states(self) -> None:
        written = mermaid(CHECKOUT)
        assert "class undoing unwindingState" in written
        assert "unwinds to failed" in written

    def test_catch_alls_are_one_state_each(self) -> None:
        lines = [line.strip() for line in mermaid(HARD).splitlines()]
        assert "any0 --> FAILED: ABORT [is_operator]" in lines
        assert "any1 --> any1: ANNOTATE" in lines
        assert "stays on COMMENT [may_comment]" in lines

    def test_odd_names_become_entities_and_numbers(self) -> None:
        lines = [line.strip() for line in mermaid(ODD_MACHINE).splitlines()]
        assert 'state "end" as s1' in lines
        assert 'state "s0" as s0' in lines
        assert "s0 --> s0: #160;" in lines
        assert any(line.startswith("s0_ --> s1: a#124;b #34;c#34;") for line in lines)
        assert sum(line == "end note" for line in lines) == sum(line.startswith("note right of") for line in lines)

    @pytest.mark.slow
    @given(machines())
    def test_every_line_is_one_of_those_the_grammar_has(self, description: MachineDescription) -> None:
        safe = r"[^\n\"<>{};:%&\\`*]*"
        entity_safe = safe.replace(";", "")
        shapes = [
            r"stateDiagram-v2",
            r"direction TB",
            rf'state "{entity_safe}" as \w+',
            rf"(\w+|\[\*\]) --> (\w+|\[\*\])(: {entity_safe})?",
            r"note right of \w+",
            r"end note",
            rf"(step|after|unwinds to|stays on) {entity_safe}",
            r"classDef \w+ fill:#\w{6},stroke:#\w{6},color:#\w{6}",
            r"class \w+(,\w+)* \w+",
        ]
        pattern = re.compile("|".join(f"(?:{shape})" for shape in shapes))
        for line in mermaid(description).splitlines():
            assert pattern.fullmatch(re.sub(r"#\d+;", "", line.lstrip())), line


class TestDot:
    def test_it_draws_the_order(self) -> None:
        written = dot(ORDER)
        assert written.startswith('digraph "order" {')
        assert '"start" -> "pending";' in written
        assert '"pending" -> "payment_processing" [label="SUBMIT [has_items]", style=solid' in written
        assert 'label="payment_processing\\nstep take_payment · 4 s"' in written
        assert written.count("peripheries=2") == 2

    def test_failures_are_dashed_and_unwinding_too(self) -> None:
        written = dot(CHECKOUT)
        assert written.count("style=dashed") == 6
        assert written.count('style="rounded,filled,dashed"') == 1

    def test_catch_alls_are_one_node_each(self) -> None:
        written = dot(HARD)
        assert '"any 1" -> "FAILED" [label="EXPIRE"' in written
        assert '"any 2" -> "any 2" [label="ANNOTATE"' in written
        assert "stays on REMIND" in written

    def test_the_start_gives_way_to_a_state_of_that_name(self) -> None:
        written = dot(machine("m", (State(name="start", initial=True),), ()))
        assert '"start_" -> "start";' in written

    @pytest.mark.slow
    @given(machines())
    def test_outside_of_quotes_there_is_only_syntax(self, description: MachineDescription) -> None:
        outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", dot(description))
        assert re.fullmatch(r"[a-z =\[\],;{}>\n0-9.TB-]*", outside)


class TestTable:
    def test_it_lists_transitions_and_states(self) -> None:
        lines = table(ORDER).splitlines()
        assert "| from | event | guard | to | action |" in lines
        assert (
            "| pending | SUBMIT | has_items (An order needs at least one item.) | payment_processing | freeze_prices |"
        ) in lines
        assert "| pending | initial |  |  | 24 h → CANCEL |  | email_receipt |" in lines
        assert "| paid |  | reserve_inventory | 5 s |  |  |  |" in lines
        assert "| fulfillment_pending |  |  |  |  | 2 d |  |" in lines
        assert "| undoing | unwinds to failed |  |  |  |  |  |" in table(CHECKOUT).splitlines()

    def test_catch_alls_are_one_row_each(self) -> None:
        lines = table(HARD).splitlines()
        assert "| any: every state that is not final | EXPIRE |  | FAILED |  |" in lines
        assert "| any: every state that is not final | ANNOTATE |  | (stays) |  |" in lines
        assert "| review | REMIND |  | (stays) |  |" in lines

    def test_markup_is_escaped(self) -> None:
        written = table(machine("m", (State(name="*a*_b_c__|`x`<br>"),), ()))
        assert r"| \*a\*\_b_c\_\_\|\`x\`&lt;br&gt; |" in written

    @given(machines())
    def test_every_row_has_as_many_cells_as_its_head(self, description: MachineDescription) -> None:
        transitions, states = table(description).split("\n\n")
        for rows, cells in ((transitions, 5), (states, 7)):
            for row in rows.splitlines():
                assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == cells + 1


class TestWording:
    @pytest.mark.parametrize(
        ("seconds", "words"),
        [
            (0, "0 s"),
            (0.25, "250 ms"),
            (1.5, "1.5 s"),
            (4, "4 s"),
            (90, "90 s"),
            (60, "1 min"),
            (5400, "90 min"),
            (86400, "24 h"),
            (172800, "2 d"),
        ],
    )
    def test_durations(self, seconds: float, words: str) -> None:
        assert duration(seconds) == words

    def test_control_characters_are_shown(self) -> None:
        assert visible("a\nb\x00\x7f\x85\u2028\ud800\uffff") == "a␊b␀␡\ufffd\ufffd\ufffd\ufffd"

    def test_wide_and_unknown_characters_take_room(self) -> None:
        assert text_width("日", 10) > text_width("é", 10) > text_width("i", 10) > 0
        assert text_width("a", 10, bold=True) > text_width("a", 10)

    def test_only_what_was_never_visited_is_cold(self) -> None:
        assert level(0, 1000) == 0
        assert level(1, 1_000_000) == 1
        assert level(1000, 1000) == 5
        assert level(0, 0) == 0
