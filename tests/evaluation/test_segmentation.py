"""The tokenizer follows the script of the references, not the language code."""

from unittest import mock

import pytest
from sacrebleu.metrics.ter import TER

from seq2seq.evaluation import metrics
from seq2seq.evaluation.segmentation import BY_SPACES, Segmentation, segmentation_of

CHINESE = ["我昨天买了三本新书。", "猫在窗外看着雨,很安静。", "他说iPhone比较贵。"]
JAPANESE = ["彼は昨日新しい本を三冊買いました。", "猫が静かに窓の外を見ていますよ。"]
UNSPACED = {
    "Chinese": CHINESE,
    "Japanese": JAPANESE,
    "Thai": ["เมื่อวานเขาซื้อหนังสือใหม่สามเล่ม", "แมวนั่งมองออกไปนอกหน้าต่าง"],
    "Khmer": ["គាត់បានទិញសៀវភៅថ្មីបីក្បាលកាលពីម្សិលមិញ"],
    "Lao": ["ລາວຊື້ປຶ້ມໃໝ່ສາມຫົວມື້ວານນີ້"],
    "Myanmar": ["သူမနေ့ကစာအုပ်အသစ်သုံးအုပ်ဝယ်ခဲ့သည်။"],
    "Tibetan": ["ཁོས་ཁ་སང་དཔེ་ཆ་གསར་པ་གསུམ་ཉོས་སོང་།"],
    "Javanese": ["ꦱꦧꦼꦤ꧀ꦮꦺꦴꦁꦏꦭꦲꦶꦂꦲꦏꦺ"],
}
CODES = ["", "en", "jp", "cn", "japanese", "chinese", "zhs", "zht", "zh-Hant", "kn", "bur", "xx"]
SPACED = [
    ["He bought three new books yesterday.", "The cat looks out of the window."],
    ["그는 어제 새 책 세 권을 샀다.", "고양이가 창밖을 조용히 보고 있다."],
    ["उसने कल तीन नई किताबें खरीदीं।"],
    ["اشترى أمس ثلاثة كتب جديدة."],
    ["Wo zuotian mai le san ben xin shu."],
    ["He said 好 and left the room at once, without a word."],
    ["", "  "],
    ["12 34", "?"],
]


@pytest.mark.parametrize("script", UNSPACED)
def test_the_script_of_text_without_spaces_is_found_whatever_the_code(script: str) -> None:
    for code in CODES:
        segmentation = segmentation_of(code, [UNSPACED[script]])
        is_japanese = {segmentation.script, code} <= {"Japanese", "jp", "japanese"}
        assert segmentation.script == script or is_japanese, code


@pytest.mark.parametrize(
    ("script", "code"), [*((script, "") for script in UNSPACED), ("Thai", "xx")]
)
def test_identical_text_without_spaces_has_the_full_score(script: str, code: str) -> None:
    references = UNSPACED[script]
    segmentation = segmentation_of(code, [references])
    scores = metrics.score(references, [references], segmentation=segmentation, bootstrap=0)
    assert scores["bleu"].score == pytest.approx(100)
    assert scores["ter"].score == 0
    assert f"tok:{segmentation.tokenize}|" in scores["bleu"].signature
    assert metrics.score_by("bleu", references, references, segmentation) == pytest.approx(100)
    note = segmentation.note()
    assert note is not None
    assert str(segmentation.script) in note
    assert f"tokenizer {segmentation.tokenize}" in note
    assert "\n" not in note


def test_text_with_spaces_is_split_by_13a() -> None:
    for code in (*CODES, "zh", "ja", "th", "ko"):
        for references in SPACED:
            assert segmentation_of(code, [references]) == BY_SPACES, (code, references)
    assert BY_SPACES.note() is None


def test_chinese_and_japanese_differ_by_kana_or_by_code() -> None:
    han = ["東京大学本郷", "日本経済新聞"]
    for code in ("ja", "jpn", "jp", "ja_JP", "Japanese"):
        assert segmentation_of(code, [han]).tokenize == "char"
    for code in ("", "zh", "zh-TW", "cmn_Hans", "yue", "cn"):
        assert segmentation_of(code, [han]).tokenize == "zh"
    assert segmentation_of("zh", [JAPANESE]).tokenize == "char"
    several = segmentation_of("", [["", ""], JAPANESE])  # lists of references, the first blank
    assert several.script == "Japanese"


def test_a_chosen_tokenizer_replaces_that_of_the_script_and_is_noted() -> None:
    segmentation = segmentation_of("ja", [JAPANESE], "13a")
    assert segmentation == Segmentation("13a", True, "Japanese")
    assert "counts text between spaces as one word" in (segmentation.note() or "")
    assert segmentation_of("en", [SPACED[0]], "intl").tokenize == "intl"


@pytest.mark.parametrize("references", [CHINESE, JAPANESE])
def test_ter_has_sacrebleus_asian_options(references: list[str]) -> None:
    hypotheses = [line[:3] + line[4:] for line in references]
    segmentation = segmentation_of("", [references])
    ter = metrics.score(hypotheses, [references], segmentation=segmentation, bootstrap=0)["ter"]
    assert ter is not None
    sacrebleus_ter = TER(normalized=True, asian_support=True, case_sensitive=True)
    assert ter.score == sacrebleus_ter.corpus_score(hypotheses, [references]).score
    plain = TER(case_sensitive=True).corpus_score(hypotheses, [references]).score
    assert ter.score < plain == 100
    assert "norm:yes|punct:yes|asian:yes" in ter.signature


@pytest.mark.parametrize(
    ("line", "segmentation"),
    [
        (" ".join(f"w{n}" for n in range(3000)), BY_SPACES),
        ("我" * 400, Segmentation("zh", True, "Chinese")),
    ],
)
@pytest.mark.parametrize("side", [0, 1])
def test_lines_too_long_for_ter_are_named_and_the_rest_is_scored(
    line: str, segmentation: Segmentation, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TER, which would take minutes, is not even prepared."""
    monkeypatch.setattr(metrics, "TER", mock.Mock(side_effect=AssertionError("TER was computed")))
    texts = [[line, "a b c d e"], [line, "a b c d e"]]
    texts[1 - side] = ["short", "a b c d e"]
    scores = metrics.score(texts[0], texts[1:], segmentation=segmentation)
    test = metrics.compare(texts[0], texts[0], texts[1:], segmentation=segmentation)
    assert "ter" not in {**scores, **test}
    assert scores["chrf"].score > 0
    note = metrics.long_line_note([("hyp", texts[0]), ("ref", texts[1])], segmentation)
    assert note is not None
    assert note.startswith(f"{('hyp', 'ref')[side]}:1: the line has ")
    assert "300 words" in note


def test_lines_within_the_bound_have_a_ter() -> None:
    line = " ".join(f"w{n}" for n in range(metrics.MAX_TER_WORDS))
    assert metrics.long_line_note([("hyp", [line])], BY_SPACES) is None
    ter = metrics.score([line], [[line]], bootstrap=0)["ter"]
    assert ter is not None
    assert ter.score == 0
