"""`interlock bulk`: on a home and at a server, dry runs, runs, listings, exit codes, mistakes (F5)."""

import json
from pathlib import Path

import pytest

from interlock import App, BlockingClient
from interlock.engine.operators.bulk import BulkRequest
from tests.unit.cli.running import Interlock
from tests.unit.cli.serving import serving
from tests.unit.cli.shop import NAME, Remark, order

REMARK = ("REMARK", '{"note": "x"}')


def test_a_filter_is_planned_and_moved_on_a_home(
    interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_HOME", f"lanes://{tmp_path}/home")
    for number in range(3):
        assert interlock("start", NAME, f"o-{number}").code == 0
    words = ("bulk", "send", NAME, *REMARK, "--state", "draft")
    plan = interlock(*words, "--dry-run")
    assert plan.out == "3 match: 3 would move, 0 would be refused\n", plan.err
    missing = interlock(*words)
    assert (missing.code, "--name is missing" in missing.err) == (2, True)
    done = interlock(*words, "--name", "n", "--rate", "100", "-o", "json")
    assert done.code == 0, done.err
    run = json.loads(done.out)
    assert (run["state"], run["moved"], run["by"] != "") == ("done", 3, True)
    assert interlock(*words, "--name", "n").out == "n (send REMARK, order): done, 3 of 3 moved\n"
    other = interlock("bulk", "send", NAME, "CANCEL", "--name", "n")
    assert (other.code, "has another event" in other.err) == (3, True)
    refused = interlock("bulk", "send", NAME, "CHARGED", "--dry-run").out
    assert "3 refused: event CHARGED has no transition from state 'draft' (such as o-0, o-1, o-2)" in refused
    assert interlock("bulk", "list", "-o", "ids").out == "n\n"
    assert "n (send REMARK, order): done" in interlock("bulk", "show", "n").out
    assert interlock("bulk", "show", "m").code == 4
    assert interlock("bulk", "stop", "n").out.startswith("n (send REMARK, order): done")
    assert interlock("bulk", "send", NAME, "NONE", "--dry-run").code == 2
    assert interlock("bulk", "pause", NAME, "--where", "colour=red").code == 2
    assert interlock("bulk", "pause", NAME, "--note", "audit", "--by", "ada").out.endswith("done, 3 of 3 moved\n")
    assert interlock("bulk", "resume", NAME).code == 0
    assert interlock("bulk", "retry", NAME, "--dry-run").out == "0 match: 0 would move, 0 would be refused\n"


def test_a_filter_is_planned_and_moved_at_a_server(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(App(machines=[order])) as url:
        monkeypatch.setenv("INTERLOCK_SERVER", url)
        for number in range(3):
            assert interlock("start", NAME, f"o-{number}").code == 0
        for target in (NAME, "order"):
            plan = interlock("bulk", "send", target, *REMARK, "--state", "draft", "--dry-run", "-o", "json")
            assert json.loads(plan.out)["moving"] == 3, plan.err
        done = interlock("bulk", "send", "order", *REMARK, "--state", "draft", "--name", "n", "--by", "ada")
        assert done.out == "n (send REMARK, order): done, 3 of 3 moved\n", done.err
        assert interlock("bulk", "list", "-o", "ids").out == "n\n"
        for rate in ("nan", "-1", "0"):
            refused = interlock("bulk", "pause", NAME, "--rate", rate)
            assert (refused.code, "is not a rate" in refused.err) == (2, True), refused.err
        refused = interlock("bulk", "retry", NAME, "--kind", "guard")
        assert refused.code != 0
        assert "'guard' is not a kind of dead letter" in refused.err
        assert interlock("bulk", "pause", NAME).out.endswith("done, 3 of 3 moved\n")
        with BlockingClient(url) as client:
            ready = client.bulk(order, state="draft")
            assert ready.dry_run(BulkRequest("resume")).moving == 3
            assert ready.dry_run("REMARK", data={"note": "y"}).moving == 3
            assert ready.resume(by="ada").moved == 3
            assert ready.retry_dead_letters().matching == 0
            moved = ready.send(Remark("y"), name="m")
            assert client.bulk_runs.get("m") == moved
            assert client.bulk_runs.stop("m").state == "done"
            assert next(each.name for each in client.bulk_runs.list()) == "m"
