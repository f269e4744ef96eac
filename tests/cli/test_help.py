"""Help, completion, and what is made of words that are no option: commands, files, slips."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from base import option
from click.testing import CliRunner
from command_parts import options
from commands import run_predict, run_train

from randsvm import errors
from randsvm.cli.predict import predict as prediction
from randsvm.cli.train import train as training
from randsvm.errors import ParameterError

TEXT = "+1 1:1 2:0.5\n+1 1:2\n-1 1:-1 2:1\n-1 1:-2 2:-1\n"
GROUPS = {"randsvm-train": training, "randsvm-predict": prediction}
EVERY = {
    (program, name): one for program, of in GROUPS.items() for name, one in of.commands.items()
}


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Four rows, in the working folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "toy.svm"
    path.write_text(TEXT)
    return path


def run_shown(command, *words):
    return CliRunner().invoke(command, words, prog_name="randsvm-it").output


def shown(command, *words):
    return CliRunner().invoke(command, [*words, "--help-all"], prog_name="randsvm-it").output


# ---- help -----------------------------------------------------------------------------------


@pytest.mark.parametrize("program, words", [*((one, "") for one in GROUPS), *EVERY], ids=str)
def test_help_fits_a_terminal_of_80_columns_and_has_examples(program, words):
    text = shown(GROUPS[program], *words.split())
    assert max(map(len, text.splitlines())) <= 80
    examples = text.partition("\nExamples:\n")[2].partition("\n\n")[0].splitlines()
    assert 1 <= len([line for line in examples if re.match(r"  \S", line)]) <= 3


@pytest.mark.parametrize("program", GROUPS)
def test_every_example_is_a_command_line_that_is_understood(program, toy):
    group = GROUPS[program]
    for name, command in [("", group), *group.commands.items()]:
        for words in command.examples:
            named, *arguments = shlex.split(words.rpartition("|")[2])
            is_plain = arguments[0] not in group.commands
            used = group.plain if is_plain else arguments.pop(0)
            assert named == program
            assert command is group or name == used
            group.commands[used].make_context(used, arguments)


@pytest.mark.parametrize("program, name", EVERY)
def test_every_option_has_its_bounds_and_its_default_in_a_group(program, name):
    text, command = shown(GROUPS[program], name), EVERY[program, name]
    groups = re.findall(r"^(\w.*):$", text, re.MULTILINE)
    assert groups[-1] == "Examples"
    if program == "randsvm-train":
        assert groups[:-1] == [
            "Model",
            "Algorithm and stopping",
            "Search and cross-validation",
            "Tables",
            "Resources",
            "Output and other options",
        ]
    entries = re.split(r"\n  (?=-)", text.partition(f"\n{groups[0]}:")[2])[1:]
    shown_ones = [one for one in command.params if not getattr(one, "hidden", False)]
    specs = {one.opts[-1]: one.spec for one in shown_ones if hasattr(one, "spec")}
    assert set(specs) <= {flag for entry in entries for flag in re.findall(r"--[\w-]+", entry)}
    for entry in entries:
        named = re.match(r"(?:-\w, )?(--[\w-]+)", entry)
        assert named
        flag = named[1]
        words = " ".join(entry.split())
        kind = specs[flag].kind if flag in specs else None
        if kind and not isinstance(kind, option.Flag | option.Weights):
            assert "[default: " in words
        if isinstance(kind, option.Number) and flag not in ("--coef0",):
            assert re.search(r"\[(>|from)", words)


# Words of the help that are options of another program, or none.
OTHERS = r"(?:randsvm|svm)-\w+ --?[\w-]+|LIBSVM's -\w|-wLABEL|exp\(-z\)"


@pytest.mark.parametrize("program, name", EVERY)
def test_the_help_of_an_option_names_options_and_files_of_its_own_command(program, name):
    command = EVERY[program, name]
    files = set(re.findall(r"[A-Z]+_FILE", run_shown(GROUPS[program], name, "--help")))
    options = {word for one in command.params for word in one.opts}
    for one in command.params:
        text = re.sub(OTHERS, "", getattr(one, "help", None) or "")
        assert set(re.findall(r"(?<![\w'^-])--?[a-z][\w-]*", text)) <= options, one.opts
        assert set(re.findall(r"[A-Z]+_FILE", text)) <= files, one.opts


@pytest.mark.parametrize("program, words", [*((one, "") for one in GROUPS), *EVERY], ids=str)
def test_the_short_help_is_one_screen_and_names_the_whole_one(program, words):
    """Its options are those of a first training; all others are in --help-all."""
    short = run_shown(GROUPS[program], *words.split(), "--help")
    whole = run_shown(GROUPS[program], *words.split(), "--help-all")
    assert len(short.splitlines()) <= 52
    assert "--help-all" in short
    listed = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", short, re.MULTILINE))
    assert not words or listed < set(re.findall(r"--[\w-]+", whole))


@pytest.mark.parametrize("program, name", EVERY)
def test_the_short_help_counts_the_options_that_only_the_whole_one_has(program, name):
    """The flags of both texts, not the declarations, are compared."""
    texts = [run_shown(GROUPS[program], name, flag) for flag in ("--help", "--help-all")]
    short, whole = (text.partition("\nExamples:")[0] for text in texts)
    listed, expected = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", short, re.MULTILINE)), {}
    for title, entries in re.findall(r"^(\w.*):\n((?:  .*\n|\n(?=  ))*)", whole, re.MULTILINE):
        flags = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", entries, re.MULTILINE))
        if count := len(flags - listed - {"--help", "--help-all"}):
            expected[title] = count
    told = texts[0].partition("Options not listed: ")[2].partition("All options")[0]
    found = re.findall(r"([A-Z][a-z, -]+?) \((\d+)\)", told.replace("-\n", "-").replace("\n", " "))
    assert {group: int(count) for group, count in found} == expected


@pytest.mark.parametrize("words", [[], ["randsvm"], ["sgd"]])
def test_the_short_help_has_what_a_table_needs(words):
    text = run_shown(training, *words, "--help")
    for flag in "--label-column", "--ignore-columns", "--missing":
        assert re.search(rf"^  {flag} ", text, re.MULTILINE)
    assert "Tables (" in text


def test_the_overview_comes_with_h_alone_and_without_any_word(
    capsys,
):
    run_train("--help")
    overview = capsys.readouterr().out
    assert "start here" in overview
    run_train("-h")
    assert capsys.readouterr().out == overview
    assert CliRunner().invoke(training, [], prog_name="randsvm-train").exit_code == 2
    run_train()
    assert capsys.readouterr() == ("", overview)


def test_the_help_has_every_exit_code_of_the_errors():
    codes = {one.exit_code for one in vars(errors).values() if hasattr(one, "exit_code")}
    assert codes | {0, 128} == set(options.EXIT_CODES)
    for text in (shown(training), shown(prediction)):
        for code in options.EXIT_CODES:
            assert re.search(rf"^  {code} +\w|^  {code} +[+-]", text, re.MULTILINE)


def test_bash_completes_a_command_beside_files(toy):
    assert completed("randsvm-train sg") == ["sgd"]
    assert completed("randsvm-train osu") == ["osuna", "osuna-closest"]
    assert completed("randsvm-train to") == ["toy.svm"]
    assert completed("randsvm-train sgd to") == ["toy.svm"]
    toy.with_name("sgd[1].svm").write_text(TEXT)
    assert completed("randsvm-train sg") == ["sgd", "sgd[1].svm"]
    toy.with_name(".hidden").write_text(TEXT)
    assert ".hidden" not in completed("randsvm-train ")
    assert {"sgd", "toy.svm"} <= set(completed("randsvm-train "))


def completed(line):
    """Return what bash offers for the last word of the line: the answers of the function that
    click defines, or names of files if that function leaves them to bash."""
    source = CliRunner().invoke(
        training, prog_name="randsvm-train", env={"_RANDSVM_TRAIN_COMPLETE": "bash_source"}
    )
    *_, last = words = line.split(" ")
    script = f"""
        PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH
        compopt() {{ by_bash=1; }}
        {source.output}
        COMP_WORDS=({line}) COMP_CWORD={len(words) - 1}
        _randsvm_train_completion randsvm-train {shlex.quote(last)} x
        if [ ${{#COMPREPLY[@]}} = 0 ] && [ "$by_bash" ]
        then compgen -f -- {shlex.quote(last)}
        else printf '%s\\n' "${{COMPREPLY[@]}}"
        fi
    """
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert not ended.stderr
    return ended.stdout.splitlines()


# ---- words ----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["toy.svm", "-c 2 toy.svm", "-t linear -h 0 toy.svm", "toy"])
def test_without_a_command_it_is_randsvm(toy, words):
    toy.with_name("toy").write_text(TEXT)
    contents = []
    for command in ([], ["randsvm"]):
        run_train(*command, "-q", *words.split(), "m")
        contents.append(toy.with_name("m").read_bytes())
    assert contents[0] == contents[1]
    assert b'configuration "randsvm ' in contents[0]


def test_a_model_in_the_place_of_data(toy):
    run_train("-q", toy, "m")
    before = toy.with_name("m").read_bytes()
    with pytest.raises(ParameterError, match=r"m is a model, not data: .* TRAIN_FILE MODEL_FILE"):
        run_train("m", "toy.svm")
    with pytest.raises(ParameterError, match=r"m is a model, .* TEST_FILE MODEL_FILE OUTPUT_FILE"):
        run_predict("m", "toy.svm", "out")
    assert (toy.read_text(), toy.with_name("m").read_bytes()) == (TEXT, before)
    assert not toy.with_name("out").exists()
