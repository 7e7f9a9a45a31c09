"""The bank and the warehouse of the demo: once per key, with faults, with an outage, with books."""

from interlock.cli.demo.journeys import Bank, BankCall


def test_a_deed_is_done_once_per_key_whatever_happens_to_the_answer() -> None:
    bank = Bank(1)
    verdicts = []
    for number in range(200):
        call = BankCall("confirm", f"order-{number}", f"k-{number}")
        verdicts += [bank.answer(call)[0] for _ in range(3)]
    written = bank.books
    charged = [entry.key for entry in written if entry.deed == "charged"]
    assert sorted(charged) == sorted(f"k-{number}" for number in range(200))
    assert {"failed", "lost", "slow"} <= {entry.deed for entry in written}
    assert verdicts[2::3] == ["done"] * 200
    assert {"failed", "lost", "done"} == set(verdicts[::3])


def test_an_answer_may_be_late_and_never_by_more_than_it_says() -> None:
    bank = Bank(1)
    late = [bank.answer(BankCall("reserve", f"order-{number}", f"k-{number}"))[1] for number in range(300)]
    assert 0 < max(late) < 0.4
    assert late.count(0.0) > 250


def test_a_card_is_declined_as_often_as_it_says() -> None:
    bank = Bank(1)

    def confirm(key: str) -> str:
        call = BankCall("confirm", "order-1", key, 2)
        bank.answer(call)
        return bank.answer(call)[0]

    assert [confirm(key) for key in ("a", "b", "c", "b")] == ["declined", "declined", "done", "declined"]


def test_during_an_outage_the_bank_answers_nobody_and_the_warehouse_everybody() -> None:
    bank = Bank(1)
    bank.down = True
    assert {bank.answer(BankCall(asked, "o", "k"))[0] for asked in ("create_intent", "confirm", "cancel")} == {"down"}
    assert bank.answer(BankCall("release", "o", "k")) == ("done", 0.0)
    bank.answer(BankCall("reserve", "o", "r"))
    assert bank.answer(BankCall("reserve", "o", "r")) == ("done", 0.0)
    assert bank.refused == 3
    bank.down = False
    bank.answer(BankCall("confirm", "o", "k"))
    assert bank.answer(BankCall("confirm", "o", "k")) == ("done", 0.0)


def test_only_what_was_taken_is_given_back() -> None:
    bank = Bank(1)
    for call in (BankCall("cancel", "o", "c1"), BankCall("confirm", "o", "k"), BankCall("cancel", "o", "c2")):
        bank.answer(call)
        bank.answer(call)
    assert [entry.deed for entry in bank.books if entry.deed in {"charged", "refunded"}] == [
        "charged",
        "refunded",
    ]
