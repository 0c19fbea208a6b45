"""The documentation site: its pages, generated pages, navigation and links."""

import ast
import base64
import importlib.util
import json
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cases.environment import project_environment

import build_docs
from documentation.command_line import command_line_page, command_parsers
from documentation.config_keys import config_keys_page
from documentation.links import problems_of
from documentation.translating import translating_page
from seq2seq.__main__ import GROUPS
from seq2seq.cli.parser import commands_of
from seq2seq.config.schema import json_schema, load_config
from seq2seq.inference.nbest import NBestEntry
from seq2seq.inference.passes import PASSES
from seq2seq.inference.translation import Translation, translation_as_json
from seq2seq.text.steps import STEPS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
needs_docs = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("latex2mathml", "nbclient", "zensical"))),
    reason="needs the extra docs",
)


def pages_of(navigation: list[dict[str, Any]]) -> Iterator[str]:
    for entry in navigation:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from pages_of(target)


@needs_docs
def test_every_page_is_in_the_navigation_once(tmp_path: Path) -> None:
    build_docs.stage(tmp_path / "docs")
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    staged = [path.relative_to(tmp_path / "docs") for path in (tmp_path / "docs").rglob("*.md")]
    assert sorted(pages_of(project["nav"])) == sorted(path.as_posix() for path in staged)


def test_every_option_is_on_the_command_line_page() -> None:
    page = command_line_page()
    assert [name for name, _ in command_parsers()] == list(commands_of(GROUPS))
    for name, parser in command_parsers():
        section = page.partition(f"\n## seq2seq {name}\n")[2].partition("\n## ")[0]
        options = [option for action in parser._actions for option in action.option_strings]
        assert options or name in ("completion", "explain", "runs")
        assert [option for option in options if f"`{option}" not in section] == []


def test_every_key_is_on_the_page_of_config_keys() -> None:
    page = config_keys_page()
    schema = json_schema()
    targets = re.findall('<span id="([^"]+)"></span>', page)
    assert {"seed", "training.decay", "data.train.src", "data.valid.src"} <= set(targets)
    assert len(targets) == len(set(targets))
    page = re.sub("<span .*?</span>", "", page)
    keys = list(schema["properties"].keys() - schema["$defs"].keys())
    for section in schema["$defs"].values():
        keys += section.get("properties", ())
    sections = {"data", "vocabulary", "model", "training", "decoding"}
    assert [key for key in keys if f"| `{key}` |" not in page and key not in sections] == []
    (rate,) = (row for row in page.splitlines() if row.startswith("| `learning_rate` | `0.001` |"))
    assert rate.endswith("<br>*number, above 0* |")
    assert (
        "<br>*`constant`, `inverse_sqrt`, `linear`, `cosine`, `plateau`; or `{plateau: ...}`; or `{"
        in page
    )
    assert "| `encoder` | `bidirectional` |" in page


def test_every_step_and_pass_is_on_their_page() -> None:
    page = translating_page()
    for kind in (*STEPS, *PASSES):
        assert page.count(f"\n| {kind.__name__} | ") == 1
    searches = sum(kind.most_searches for kind in PASSES)
    assert f"| **together** | | **{searches}** |" in page


def test_the_documented_json_has_the_fields_of_a_translation() -> None:
    entry = NBestEntry("a", -1.0, ["a", "</s>"], [-1.0, -1.0], None)
    written = json.loads(translation_as_json(Translation([entry], ["b", "</s>"]), with_nbest=True))
    page = (ROOT / "docs/reference/formats.md").read_text(encoding="utf-8")
    documented = json.loads(page.partition("```json\n")[2].partition("```")[0])
    assert documented.keys() == written.keys()
    assert all(
        documented_entry.keys() == written["n_best"][0].keys()
        for documented_entry in documented["n_best"]
    )
    assert "| `attention_blocks`, `head_blocks` |" in page


def test_every_module_with_layers_is_on_the_page_of_the_model() -> None:
    page = (ROOT / "docs/reference/model.md").read_text(encoding="utf-8")
    paths = (ROOT / "seq2seq/model").glob("*.py")
    pattern = re.compile(r"^class \w+\((nn\.\w+|\w+Layer)\):", re.MULTILINE)
    layers = [path.stem for path in paths if pattern.search(path.read_text(encoding="utf-8"))]
    assert "recurrent" in layers
    assert [module for module in layers if f"\n::: seq2seq.model.{module}\n" not in page] == []


def test_every_extra_is_on_the_installation_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs/get-started.md").read_text(encoding="utf-8")
    extras = project["optional-dependencies"].keys() - {"browser", "dev", "docs"}
    assert [extra for extra in sorted(extras) if f"\n| `{extra}` | " not in page] == []


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="other.html">', None),
        ('<a href="other.html#there">', None),
        ('<a href="https://example.org">', None),
        ('<img src="data:image/png;base64,AA==">', None),
        ('<a href="missing.html">', "missing.html: no such file"),
        ('<a href="other.html#nowhere">', "other.html#nowhere: no such anchor"),
        ('<a href="#nowhere">', "#nowhere: no such anchor"),
        ('<img src="missing.png">', "missing.png: no such file"),
        ('<script src="https://x.org/a.js">', "https://x.org/a.js: loaded from the network"),
        ('<link rel="stylesheet" href="//x.org/a.css">', "//x.org/a.css: loaded from the network"),
    ],
)
def test_a_broken_link_is_found(html: str, problem: str | None, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(html, encoding="utf-8")
    (tmp_path / "other.html").write_text('<h1 id="there">', encoding="utf-8")
    assert problems_of(tmp_path) == ([f"index.html: {problem}"] if problem else [])


@pytest.mark.thorough
@needs_docs
def test_the_site_builds_without_a_warning() -> None:
    command = [sys.executable, "scripts/build_docs.py"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stdout.startswith("build/site: the site. ")
    assert (ROOT / "build/site/index.html").is_file()


# ------------------------------------------------------------------- notebooks, formulas, excerpts


# Little text and training, and translations that end: an untrained model seldom ends them itself.
LITTLE_TEXT = """
for path in Path("data").rglob("*.*"):
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    count = 1000 if path.stem == "train" else 60
    path.write_text("".join(lines[:count]), encoding="utf-8")"""
UNPACK = 'unpack_demo_corpora(Path("data"));'
SHORTENED = {
    "attention": {},
    "language-pair": {
        UNPACK: UNPACK + LITTLE_TEXT,
        "check en-mr.yaml ": "check en-mr.yaml model.layers=1 model.hidden_size=64 ",
        "MINUTES = 2 ": "MINUTES = 600 ",  # enough for the first model that init measures
        '"vocabulary.size=800"]': (
            '"vocabulary.size=800", "training.max_steps=9", "decoding.max_length=9", '
            '"model.layers=1", "model.hidden_size=64"]'
        ),
    },
    "comparison": {
        UNPACK: UNPACK + LITTLE_TEXT,
        "embedding_size: 128, hidden_size: 256": "embedding_size: 16, hidden_size: 32",
        "max_epochs: {EPOCHS}\n": "max_steps: 9\n",
        "seeds: [1, 2]\n": "seeds: [1]\n",
        "log_every: 1000\n": "log_every: 1000\ndecoding: {{max_length: 9}}\n",
    },
}


@pytest.mark.thorough
@needs_docs
@pytest.mark.parametrize("name", SHORTENED)
def test_a_tutorial_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute a notebook, with little training; its cells compare the values they show."""
    import nbformat

    from documentation.notebooks import execute

    monkeypatch.setenv("PYTHONPATH", project_environment()["PYTHONPATH"])
    notebook = nbformat.read(ROOT / f"docs/tutorials/{name}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)  # as stored by run_notebooks.py
    for text, replacement in SHORTENED[name].items():
        (cell,) = (cell for cell in notebook.cells if text in cell.source)
        cell.source = cell.source.replace(text, replacement)
    nbformat.write(notebook, tmp_path / "tutorial.ipynb")
    executed_notebook = execute(tmp_path / "tutorial.ipynb", tmp_path)
    assert [cell.source for cell in executed_notebook.cells] == [
        cell.source for cell in notebook.cells
    ]


@needs_docs
def test_a_notebook_becomes_a_page(tmp_path: Path) -> None:
    import nbformat

    from documentation.notebooks import notebook_page

    png = base64.b64encode(b"a picture").decode()
    outputs = [
        nbformat.v4.new_output("stream", text="one\n"),
        nbformat.v4.new_output("stream", text="\x1b[31mtwo\x1b[0m\n"),
        nbformat.v4.new_output("display_data", {"image/png": png, "text/plain": "<Figure>"}),
        nbformat.v4.new_output("display_data", {"image/svg+xml": "<svg/>", "text/plain": "<SVG>"}),
        nbformat.v4.new_output("execute_result", {"text/html": "<b>x</b>\n\n<i>y</i>"}),
    ]
    cell = nbformat.v4.new_code_cell("print(1)", outputs=outputs)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title"), cell])
    nbformat.write(notebook, tmp_path / "my.ipynb")
    assert notebook_page(tmp_path / "my.ipynb", tmp_path) == (
        "# Title\n\n```python\nprint(1)\n```\n\n```text\none\ntwo\n```\n\n"
        "![Output of the cell](my_files/1-0.png)\n\n![Output of the cell](my_files/1-1.svg)\n\n"
        '<div class="output"><b>x</b>\n<i>y</i></div>\n'
    )
    assert (tmp_path / "my_files/1-0.png").read_bytes() == b"a picture"
    assert (tmp_path / "my_files/1-1.svg").read_bytes() == b"<svg/>"
    cell.outputs = [nbformat.v4.new_output("display_data", {"audio/wav": "", "text/plain": "x"})]
    nbformat.write(notebook, tmp_path / "my.ipynb")
    with pytest.raises(ValueError, match="audio/wav"):
        notebook_page(tmp_path / "my.ipynb", tmp_path)


@needs_docs
def test_formulas_become_mathml_outside_of_code() -> None:
    from documentation.maths import render_maths

    page = render_maths("costs $x_1$ and `$y$`\n\n$$\na + b\n$$\n\n```bash\necho $z$\n```\n")
    assert page.count("<math") == 2
    assert "<msub><mi>x</mi><mn>1</mn></msub>" in page
    assert 'display="block"' in page
    assert "`$y$`" in page
    assert "echo $z$" in page
    assert render_maths("5 $ and 6 $ are prices") == "5 $ and 6 $ are prices"
    assert render_maths(r"$$a = 1 \qquad b = 2$$").count("<math") == 2
    space = '<mspace width="0.17em"/>'
    assert f"<mi>exp</mi>{space}<msub>" in render_maths(r"$\exp e_s$")
    assert f"</mi>{space}<mi>tanh</mi><mo" in render_maths(r"$v \tanh(x)$")


def test_an_excerpt_equals_the_source() -> None:
    from documentation.sources import insert_sources

    page = insert_sources("a\n\n<!-- source: documentation.markdown:escape -->\n\nb\n")
    assert page.startswith("a\n\n```python\ndef escape(text: str) -> str:\n")
    assert page.endswith("```\n\nb\n")
    with pytest.raises(LookupError):
        insert_sources("<!-- source: documentation.markdown:missing -->")


def test_links_to_functions_lead_to_what_they_name() -> None:
    from documentation.sources import code_links, link_problems

    pages = [*PAGES, ROOT / "CONTRIBUTING.md"]
    assert sum(len(code_links(page.read_text(encoding="utf-8"))) for page in pages) > 80
    problems = [f"{page.name}: {text}" for page in pages for text in link_problems(page)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("[`f`]\n\n[`f`]: code.py#f\n", None),
        ("[`A.f`]: one.\n\n[`A.f`]: code.py#A.f\n", None),
        ("[`code.SIZE`]\n\n[`code.SIZE`]: code.py#SIZE\n", None),
        ("[`f`]\n\n[`f`]: code.py#g\n", "code.py has no g"),
        ("[`f`]\n\n[`f`]: code.py\n", "code.py has no "),
        ("[`A.g`]\n\n[`A.g`]: code.py#A.g\n", "code.py has no A.g"),
        ("[`f`]\n\n[`f`]: missing.py#f\n", "No such file"),
        ("[`f`]\n\n[`f`]: code.py#SIZE\n", "leads to SIZE"),
        ("[`f`]\n", "is not defined"),
        ("`f`\n\n[`f`]: code.py#f\n", "is not used"),
    ],
)
def test_a_link_to_a_function_that_is_gone_is_found(
    page: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from documentation import sources

    monkeypatch.setattr(sources, "ROOT", tmp_path)
    code = "SIZE = 1\n\ndef f(): ...\n\nclass A:\n    def f(self): ...\n"
    (tmp_path / "code.py").write_text(code, encoding="utf-8")
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    problems = list(sources.link_problems(tmp_path / "page.md"))
    assert len(problems) == (problem is not None)
    assert problem is None or problem in problems[0]


def test_a_link_to_a_function_leads_to_its_source_on_the_site() -> None:
    from documentation.sources import link_sources

    text = "See [`source_of`].\n\n[`source_of`]: ../../scripts/documentation/sources.py#source_of\n"
    page = link_sources(text, ROOT / "docs/explanation/page.md", "../reference/source.md")
    anchor = "scripts.documentation.sources.source-of"
    assert page == f"See [`source_of`](../reference/source.md#{anchor}).\n\n"


# ------------------------------------------------------------------------------------------ README


def test_the_links_of_the_readme_lead_to_files() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link.partition("#")[0]).is_file()] == []


def test_the_config_of_the_readme_loads(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "my-run.yaml").write_text(block, encoding="utf-8")
    config = load_config(tmp_path / "my-run.yaml")
    assert config.name == yaml.safe_load(block)["name"]


@pytest.mark.skipif(
    not importlib.util.find_spec("hatch_fancy_pypi_readme"), reason="needs hatch-fancy-pypi-readme"
)
def test_no_link_of_the_readme_on_pypi_is_broken() -> None:
    command = [sys.executable, "-m", "hatch_fancy_pypi_readme"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert [link for link in links if not link.startswith("https://")] == []
    assert "attention.png)" not in text
    assert "Get started · Your own corpus" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_fits_beside_the_navigation(page: Path) -> None:
    """No line of code has more than 88 columns: what is beyond them has to be scrolled to."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:bash|yaml|python|json)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    assert [line for line in lines if len(line) > 88] == []


@needs_docs
def test_a_diagram_becomes_part_of_its_page(tmp_path: Path) -> None:
    build_docs.stage(tmp_path / "docs")
    page = (tmp_path / "docs/explanation/attention.md").read_text(encoding="utf-8")
    assert page.count('<svg class="diagram"') == 2
    assert ".svg)" not in page


NAME_IN_MODULE = re.compile(r"`(\w+)[^`]*`\s+(?:of|in|from)\s+`(seq2seq(?:\.\w+)*)`")


def names_of_the_package(page: str) -> Iterator[tuple[str, str]]:
    """Yield modules and names that a page imports, or says that they are in a module."""
    for name, module in NAME_IN_MODULE.findall(page):
        yield module, name
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(textwrap.dedent(block))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("seq2seq"):
                yield from ((str(node.module), alias.name) for alias in node.names)


@pytest.mark.parametrize("path", [*PAGES, ROOT / "README.md"], ids=lambda path: path.name)
def test_what_a_page_imports_exists(path: Path) -> None:
    for module, name in names_of_the_package(path.read_text(encoding="utf-8")):
        imported = importlib.import_module(module)
        is_module = hasattr(imported, "__path__") and importlib.util.find_spec(f"{module}.{name}")
        assert hasattr(imported, name) or is_module, name


def test_a_name_that_a_module_lacks_is_found_on_a_page() -> None:
    block = "```python\nfrom seq2seq import Nothing\n```\n"
    page = f"`translate(text)` of `seq2seq.text.documents`\n{block}"
    assert [*names_of_the_package(page)] == [
        ("seq2seq.text.documents", "translate"),
        ("seq2seq", "Nothing"),
    ]
