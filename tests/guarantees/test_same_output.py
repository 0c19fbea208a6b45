"""The same sentence has the same translation in any batch: on real text.

SEQ2SEQ_DATA names a folder with multi30k/ (default: data/ here, or ../shared/data);
SEQ2SEQ_SAME_LINES is the number of sentences.
"""

import gzip
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import yaml

from seq2seq.config.schema import load_config
from seq2seq.inference.translator import Translator
from seq2seq.training.loop import train

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [ROOT / "data", ROOT.parent / "shared" / "data"]
if "SEQ2SEQ_DATA" in os.environ:
    FOLDERS = [Path(os.environ["SEQ2SEQ_DATA"])]
FOUND = [folder for folder in FOLDERS if (folder / "multi30k" / "train.en.gz").exists()]
LINES = int(os.environ.get("SEQ2SEQ_SAME_LINES", "30"))
SMALL = LINES < 1000
STEPS = 40 if SMALL else 500
DECODERS = ["bahdanau"] if SMALL else ["bahdanau", "none"]

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not FOUND, reason=f"no multi30k in {', '.join(map(str, FOLDERS))}"),
]


def text(name: str, count: int) -> list[str]:
    """Return the first lines of a file of multi30k."""
    with gzip.open(FOUND[0] / "multi30k" / f"{name}.gz", "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line, _ in zip(file, range(count), strict=False)]


@pytest.fixture(scope="module", params=DECODERS)
def translator(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Translator]:
    """Train a small English-German model for a few steps."""
    folder = tmp_path_factory.mktemp("same")
    size = 32 if SMALL else 96
    sizes = {"decoder": request.param, "embedding_size": size, "hidden_size": size}
    files = {}
    for split, name, count in (("train", "train", 20 * STEPS + 700), ("valid", "val", 9)):
        for side, language in (("src", "en"), ("tgt", "de")):
            lines = text(f"{name}.{language}", count)
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        files[split] = {side: str(folder / f"{split}.{side}") for side in ("src", "tgt")}
    tree = {
        "name": "same",
        "run_dir": str(folder / "run"),
        "data": {"src_lang": "en", "tgt_lang": "de", **files},
        "vocabulary": {"size": 800 if SMALL else 2000},
        "model": sizes,
        "training": {
            "max_steps": STEPS,
            "learning_rate": 3e-3,
            "batch_tokens": 1000,
            "precision": "float32",
        },
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    run = train(load_config(folder / "config.yaml"), "cpu")
    yield Translator.load(run, device="cpu")
    torch.set_num_threads(threads)


def translated(
    translator: Translator, lines: list[str], beam: int, size: int
) -> list[tuple[str, float]]:
    """Return text and score of each line, translated `size` lines at a time."""
    texts_and_scores = []
    for start in range(0, len(lines), size):
        for translation in translator.translate(lines[start : start + size], beam_size=beam):
            texts_and_scores.append((translation.text, translation.score))
    return texts_and_scores


@pytest.mark.parametrize("beam", [1, 5])
def test_batch_order_and_padding_do_not_change_translations(
    translator: Translator, beam: int
) -> None:
    lines = text("train.en", 29_000)[-LINES:]
    assert len(lines) == LINES
    expected = translated(translator, lines, beam, LINES)
    assert len(set(expected)) > LINES / 4  # otherwise this would prove little
    generator = random.Random(1)
    order = list(range(LINES))
    for size, count in ((1, LINES // 25), (7, LINES // 5), (100, LINES), (2048, LINES)):
        generator.shuffle(order)
        shuffled = translated(translator, [lines[i] for i in order[:count]], beam, size)
        assert shuffled == [expected[i] for i in order[:count]]
    for size, count in ((1, LINES // 25), (100, LINES), (2048, LINES)):  # text only
        for start in range(0, count, size):
            part = order[:count][start : start + size]
            texts = translator.translate([lines[i] for i in part], beam, text_only=True)
            assert [translation.text for translation in texts] == [expected[i][0] for i in part]
    padded = [part for i in order for part in (lines[i], f"{lines[i]} {lines[-i]}", "")]
    assert translated(translator, padded, beam, 500)[::3] == [expected[i] for i in order]


@pytest.mark.skipif(SMALL, reason="a count, not a check: set SEQ2SEQ_SAME_LINES to 1000 or more")
@pytest.mark.parametrize("beam", [1, 5])
def test_few_texts_depend_on_the_number_of_threads(
    translator: Translator, beam: int, record_property: Callable[[str, object], None]
) -> None:
    """Equality is not promised, since the order of summation differs, but few texts may change."""
    lines = text("train.en", 29_000)[-LINES:][: max(5, LINES // 5)]
    by_one_thread = translated(translator, lines, beam, LINES)
    torch.set_num_threads(2)
    try:
        by_two_threads = translated(translator, lines, beam, LINES)
    finally:
        torch.set_num_threads(1)
    differences = sum(
        left[0] != right[0] for left, right in zip(by_one_thread, by_two_threads, strict=True)
    )
    record_property("texts that differ between one thread and two", differences)
    print(f"beam {beam}: {differences} of {len(lines):,} texts differ between one thread and two")
    assert differences <= len(lines) / 5
