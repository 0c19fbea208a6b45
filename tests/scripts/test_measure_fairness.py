"""Requests of scripts/measure_fairness.py: as large as a server accepts, and how answers count."""

import pytest

pytest.importorskip("fastapi")

from measure_fairness import ALONE, makers, measured_share
from seq2seq.tools.serving.limits import Limits
from seq2seq.tools.serving.v1 import TranslateLines

NOT_JSON = ("malformed JSON", "clients that leave", "all of these")  # or not always
LINES = [f"a line of usual text, number {number}." for number in range(300)]


def test_hostile_requests_are_within_the_limits() -> None:
    limits = Limits()
    kinds = makers(LINES, "yy")
    assert ALONE not in kinds
    sizes = list[int]()
    for kind, make in kinds.items():
        request = make()
        size = len(request.body)
        assert size <= limits.body_bytes, kind
        if request.path == "/v1/translate" and kind not in NOT_JSON:
            fields = TranslateLines.model_validate_json(request.body).text
            texts = [fields] if isinstance(fields, str) else fields
            assert len(texts) <= limits.lines, kind
            assert sum(map(len, texts)) <= limits.characters, kind
        sizes.append(size)
    assert max(sizes) > 0.9 * limits.body_bytes


def test_a_request_without_an_answer_is_not_answered_soon() -> None:
    assert measured_share([0.5, 1.5, 2.5], 4) == 50
