"""Scripts by which a shell completes commands and options."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("shtab")

from seq2seq.__main__ import GROUPS, main
from seq2seq.cli.parser import commands_of


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_script_has_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(name in out for name in commands_of(GROUPS))
    assert "max-queue" in out


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_a_command_and_an_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["completion", "bash"])
    (script := tmp_path / "seq2seq").write_text(capsys.readouterr().out, encoding="utf-8")
    for words, expected in ((["tra"], "train"), (["serve", "--metrics"], "--metrics-port")):
        line = " ".join(f"'{word}'" for word in ["seq2seq", *words])
        test = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; source {script}"
        function = "$(complete -p seq2seq | grep -o '_shtab[a-z0-9_]*')"
        call = f"{test}; {function}; echo ${{COMPREPLY[*]}}"
        process = subprocess.run(["bash", "-c", call], capture_output=True, text=True, check=False)
        assert expected in process.stdout.split(), process.stderr
