"""Command lines that are refused: the exit code, one line with the reason, and no file touched."""

import re
import shutil

import pytest
from commands import run_train
from learning import Data, gaussians

UPDATE = "sgd --update linear"
KEPT = "the options of the model: it takes no --"
# A training (MODEL_FILE m, unless words name files), the exit code, and words of the last line.
LINES = [
    # words and numbers of options
    ("randsvm --cluster local:0 two m", 2, "--cluster: expected"),
    ("randsvm --cluster local: two m", 2, "--cluster: expected"),
    ("randsvm --cluster local:10000 two m", 2, "--cluster: expected"),
    ("randsvm --cluster 127.0.0.1:99999 two m", 2, "--cluster: expected"),
    ("randsvm --cluster tcp://127.0.0.1:0 two m", 2, "--cluster: expected"),
    ("randsvm --cluster host two m", 2, "--cluster: expected"),
    ("sdg two m", 2, "neither a file nor ALGORITHM 'sdg': did you mean 'sgd'?"),
    ("info two m", 2, "info is a command of randsvm-predict"),
    ("predict inof kernel", 2, "neither a file nor COMMAND 'inof': did you mean 'info'?"),
    ("osuna.svm m", 66, "cannot open osuna.svm"),
    ("randsvm --gama 1 two m", 2, "'--gama'"),
    ("randsvm -C 1 two m", 2, "Did you mean"),
    ("randsvm -c 0 two m", 2, "'-c' / '--cost': must be > 0 and finite, got 0"),
    ("randsvm -c nan two m", 2, "'-c' / '--cost': must be > 0 and finite, got nan"),
    ("randsvm --cost=-1e0 two m", 2, "'-c' / '--cost': must be > 0 and finite, got -1e0"),
    ("randsvm -c-1 two m", 2, "'-c' / '--cost': must be > 0 and finite, got -1"),
    ("randsvm -c x two m", 2, "auto, found 'x'"),
    ("randsvm -g -1 two m", 2, "'-g' / '--gamma': must be >= 0 and finite, got -1"),
    ("randsvm -g 1,-2 two m", 2, "'-g' / '--gamma': must be >= 0 and finite, got 1,-2"),
    ("randsvm -t 7 two m", 2, "expected one of linear (0), poly (1), rbf (2)"),
    ("randsvm -t gauss two m", 2, "found 'gauss'"),
    ("randsvm --format csv --missing median two m", 2, "expected mean, found 'median'"),
    ("randsvm -k 9 --sample-size 9 two m", 2, "got r=9, k=9; raise"),
    ("randsvm --memory 1M two m", 2, "'--memory': must be >= 16M, got 1M"),
    ("randsvm --memory much two m", 2, "expected a size, e.g. 512M or 4G, found 'much'"),
    ("randsvm --jobs 0 two m", 2, "'--jobs': must be >= 1, got 0"),
    ("randsvm --seed -1 two m", 2, "'--seed': must be >= 0 and < 2^64, got -1"),
    ("randsvm --time-limit 0m two m", 2, "'--time-limit': must be > 0 seconds, got 0m"),
    ("randsvm --gap 1 two m", 2, "'--gap': must be > 0 and < 1, got 1"),
    (
        "randsvm -v 1 two m",
        2,
        "'-v' / '--folds': must be from 2 to 1000 folds, up to 100 repetitions, got 1",
    ),
    ("randsvm -w1 0 two m", 2, "'-w' / '--weight': must be > 0 and finite, got 0"),
    ("randsvm", 2, "Missing argument 'TRAIN_FILE'"),
    ("randsvm -", 2, "training from standard input needs a MODEL_FILE"),
    ("randsvm --cache c - m", 2, "--cache needs a named file"),
    ("sgd -m 10 two m", 2, "-m is the size of LIBSVM's cache: sgd does not use LIBSVM"),
    (f"{UPDATE} -m 10 two m", 2, "-m is the size of LIBSVM's cache: sgd does not use LIBSVM"),
    # probabilities, reduction, features
    ("randsvm -b 1 -s svr --components 9 two m", 2, "linear machines are for -s svc, not svr"),
    ("osuna -b 1 -s 2 --components 9 two m", 2, "linear machines are for -s svc, not one-class"),
    ("sgd -b 1 -s svr two m", 2, "-b 1: probabilities of linear machines are for -s svc, not svr"),
    ("sgd -b 1 --update m two n", 2, "--update fits no probabilities: no -b 1"),
    ("randsvm -b 2 two m", 2, "expected 0 or 1, found '2'"),
    ("randsvm --reduce 5 -t sigmoid two m", 2, "--reduce needs the linear or rbf kernel"),
    ("randsvm --reduce 5 -s nu-svc two m", 2, "--reduce is for -s svc, svr and one-class, not nu"),
    ("randsvm --reduce 5 --components 10 two m", 2, "of --components has no support vectors"),
    ("sgd --components 5 two m", 2, "random features are for -t rbf and -t poly, not linear"),
    ("osuna -t linear --components 5 two m", 2, "random features are for -t rbf and -t poly"),
    ("sgd -t rbf --components 0 two m", 2, "must be >= 1"),
    ("sgd -t poly -r -1 two m", 2, "coef0"),
    ("sgd -t sigmoid two m", 2, "expected one of linear (0), poly (1), rbf (2), found 'sigmoid'"),
    # files
    ("randsvm none m", 66, "cannot open none: No such file or directory"),
    ("randsvm --cache c none m", 66, "cannot open none: No such file or directory"),
    ("randsvm . m", 66, "cannot open .: Is a directory"),
    ("randsvm two .", 73, "cannot create .: Is a directory"),
    ("randsvm two no/m", 73, "cannot create no/m: No such file or directory"),
    ("randsvm --cache no/c two m", 73, "cannot create no/c: No such file or directory"),
    # a file of another kind, which is refused before data are read
    ("osuna none words", 73, "words: the file exists and is not a model, so it is not replaced"),
    ("osuna --log words none m", 73, "words: the file exists and is not a log, so it is not repl"),
    ("osuna --cache words none m", 73, "words: the file exists and is not a cache, so it is not "),
    ("osuna none zeros", 73, "zeros: the file exists and is not a model, so it is not replaced"),
    ("sgd none blank", 73, "blank: the file exists and is not a model, so it is not replaced"),
    ("sgd --log zeros none m", 73, "zeros: the file exists and is not a log, so it is not repl"),
    ("sgd --cache blank none m", 73, "blank: the file exists and is not a cache, so it is not "),
    ("randsvm t*", 2, "give a MODEL_FILE"),
    ("randsvm two types two", 2, "is both TRAIN_FILE"),
    # searches and folds
    ("randsvm -v 3 --select-by squared-error two m", 2, "squared-error is not for -s svc"),
    ("randsvm -v 3 -s svr --select-by auc two m", 2, "--select-by auc is not for -s svr"),
    ("randsvm -v 3 --select-by roc two m", 2, "--select-by"),
    ("randsvm -v 3 --select-by auc types m", 2, "auc"),
    ("randsvm --select-by auc two m", 2, "--select-by is for cross-validation"),
    ("randsvm --no-racing two m", 2, "--no-racing is for cross-validation"),
    ("randsvm --search-gap 0.1 two m", 2, "--search-gap is for cross-validation"),
    ("randsvm -v 5x0 two m", 2, "must be from 2 to 1000"),
    ("randsvm -v 1x3 two m", 2, "must be from 2 to 1000"),
    ("randsvm -v 5x101 two m", 2, "must be from 2 to 1000"),
    ("randsvm -v x3 two m", 2, "expected folds such as 5 or 5x3, found 'x3'"),
    ("randsvm -v 5x2 --groups time two m", 2, "--groups time has one order of rows"),
    ("randsvm --groups time two m", 2, "--groups is for cross-validation"),
    ("randsvm -v 5 --groups week two m", 2, "--groups"),
    ("randsvm -v 60 --groups time two m", 2, "-v 60: there are only 60 rows"),
    ("randsvm -v 3 --group-column who two m", 2, "--group-column is for tables"),
    ("randsvm -v 4 --groups qid qids m", 2, "there are only 3 groups of rows"),
    ("randsvm -v 1001 none m", 2, "must be from 2 to 1000"),
    ("randsvm -v 61 two m", 2, "-v 61: there are only 60 rows to cross-validate on"),
    ("randsvm -v 50 --subset 40 two m", 2, "-v 50: there are only 40 rows to cross-validate on"),
    ("randsvm --subset 10 none m", 2, "--subset is for cross-validation"),
    ("randsvm -v 3 --subset 1 none m", 2, "must be >= 2 rows"),
    ("randsvm -c 1,,2 none m", 2, "such as 2^-5:2^15:2^2) or auto, found '1,,2'"),
    ("randsvm -g 1,x none m", 2, "such as 2^-5:2^15:2^2) or scale or auto, found '1,x'"),
    ("randsvm -c 0,1 none m", 2, "must be > 0 and finite"),
    ("randsvm -c -1,3,2 none m", 2, "must be > 0 and finite, got -1,3,2"),
    ("randsvm --gap 1% two m", 2, "expected a number such as 0.01 or none, found '1%'"),
    ("randsvm -g 1,nan none m", 2, "must be >= 0 and finite"),
    ("randsvm -s svr -p 0.1,-1 none m", 2, "must be >= 0 and finite"),
    ("randsvm -s one-class -n 0.5,2 none m", 2, "must be > 0 and <= 1"),
    # ends of a run
    ("osuna --gap 0 two m", 2, "must be > 0 and < 1"),
    ("osuna --gap nan two m", 2, "must be > 0 and < 1"),
    ("osuna --time-limit 5d two m", 2, "expected a time such as 90s, 10m or 2h, found '5d'"),
    ("osuna --max-iterations 0 two m", 2, "must be >= 1"),
    ("osuna --swap 0 two m", 2, "must be >= 1 rows"),
    ("osuna --working-set 1 two m", 2, "must be >= 2 rows"),
    ("osuna -s nu-svc --working-set 3 two m", 2, "must be 4 or more with -s nu-svc, got 3"),
    ("randsvm -s nu-svc --sample-size 3 two m", 2, "must be 4 or more with -s nu-svc, got 3"),
    ("randsvm -t sigmoid --gap 0.01 two m", 2, "--gap needs a positive semidefinite kernel"),
    ("osuna -t 3 --gap 0.01 two m", 2, "--gap needs a positive semidefinite kernel"),
    ("osuna-closest -t poly -r -1 --gap 0.01 two m", 2, "positive semidefinite kernel"),
    ("sgd -s one-class --gap 0.1 two m", 2, "--gap"),
    ("sgd --multiclass crammer-singer --gap 0.1 two m", 2, "--gap"),
    ("sgd --early-stopping 0.5 --gap 0.1 two m", 2, "--gap"),
    ("sgd --max-iterations 3 two m", 2, "needs --gap"),
    ("sgd --penalty l1 --loss log two m", 2, "--penalty l1 needs --gap"),
    ("sgd --penalty l1 --gap 0.1 two m", 2, "--penalty l1 is for -s svc with --loss squared-"),
    ("sgd --penalty l1 --gap 0.1 --loss hinge two m", 2, "with --loss squared-hinge or log"),
    ("sgd --penalty l1 --gap 0.1 -s svr two m", 2, "--penalty l1 is for -s svc"),
    (
        "sgd --penalty l1 --gap 0.1 --loss log -t rbf two m",
        2,
        "of the file and starts from 0: no -t",
    ),
    ("sgd --penalty l1 --gap 0.1 --loss log --epochs 2 two m", 2, "no --epochs"),
    ("sgd --path -c 1,2 two m", 2, "--path needs --gap"),
    ("sgd --path --gap 0.1 -c 1 two m", 2, "--path is over several values of -c or of --lambda"),
    ("sgd --path --gap 0.1 -c 1,2 -g 1,2 -t rbf two m", 2, "and of no other option"),
    ("sgd --path --gap 0.1 -c 1,2 --epochs 2 two m", 2, "--path makes no steps of sgd"),
    ("randsvm --path -c 1,2 two m", 2, "--path"),
    ("sgd --penalty l3 two m", 2, "expected one of l1 (1), l2 (2), found 'l3'"),
    (f"{UPDATE} --penalty l1 two m", 2, f"{KEPT}penalty"),
    ("sgd --update linear --cluster 2 two m", 2, "they arrive: no --cluster"),
    ("sgd --require-gap 0.01 two m", 2, "--require-gap is for randsvm, "),
    ("sgd --update linear --require-gap 0.01 two m", 2, "--require-gap is for randsvm, "),
    ("osuna -t sigmoid --require-gap 0.01 two m", 2, "--require-gap needs a positive "),
    ("osuna --working-set 9 --max-iterations 1 --require-gap 0.1 two m", 75, "m is left as it was"),
    ("osuna --log log -c 0 two m", 2, "must be > 0 and finite"),
    ("osuna --log log --gap none --require-gap 0.1 two two", 2, "is both TRAIN_FILE and MODEL_F"),
    ("randsvm -s nu-svc -n 0.34 rare m", 65, "-n 0.34 is infeasible"),
    # labels and weights
    ("randsvm -w 7 2 types m", 2, "-w 7: no class has this label; the labels are"),
    ("randsvm -w 1 2 -w +1 3 two m", 2, "-w +1: give one weight for each class, not two"),
    ("randsvm -s svr words m", 65, "expected a number as label, found 'spam'"),
    ("osuna -s svr -w 1 2 two m", 2, "class weights are for -s svc, not svr"),
    ("osuna -s svr -p -1 two m", 2, "must be >= 0 and finite"),
    ("osuna -s 5 two m", 2, "svr (3), nu-svr (4), found '5'"),
    ("osuna -s 0 halves m", 65, "(or -s svr for regression), found '1.5'"),
    ("sgd one m", 65, "expected two classes, found only the label 1"),
    # warm starts
    ("osuna -s one-class --warm-start kernel two m", 65, "-s one-class"),
    ("osuna -s svr --warm-start kernel two m", 65, "-s svr"),
    ("osuna --warm-start kernel types m", 65, "the model to start from has the labels"),
    ("randsvm --warm-start kernel words m", 65, "the model to start from has the labels"),
    ("osuna --warm-start two two m", 65, "two:1"),
    ("osuna --warm-start none two m", 66, "cannot open none"),
    ("randsvm --warm-start linear two m", 65, "linear"),
    # sgd and its updates
    ("sgd --lambda nan two m", 2, "must be > 0 and finite"),
    ("sgd --multiclass crammer-singer --loss log two m", 2, "has the hinge loss, not log"),
    ("sgd -s svr --loss hinge two m", 2, "--loss of -s svr is epsilon-insensitive or squared-"),
    ("sgd --loss epsilon-insensitive two m", 2, "--loss of -s svc is hinge or squared-hinge or"),
    ("sgd -s one-class --no-bias two m", 2, "-s one-class finds the offset b"),
    (f"{UPDATE} --no-bias two m", 2, f"{KEPT}no-bias"),
    ("sgd --epochs 0 two m", 2, "--epochs 0 needs --gap"),
    ("sgd --early-stopping 1.5 two m", 2, "must be > 0 and < 1"),
    ("sgd --early-stopping 0 two m", 2, "must be > 0 and < 1"),
    ("sgd --checkpoint 10 two m", 2, "--checkpoint needs --update MODEL"),
    ("sgd --update-rate 0.1 two m", 2, "--update-rate needs --update MODEL"),
    ("sgd -w +1 0 two m", 2, "must be > 0 and finite"),
    ("sgd -w spam 2 two m", 2, "-w spam: no class has this label; the labels are"),
    ("sgd -s one-class -n 0.1 --loss log two m", 2, "-n does not use --loss"),
    (f"{UPDATE} -c 1 two m", 2, f"{KEPT}cost"),
    (f"{UPDATE} --lambda 0.1 two m", 2, f"{KEPT}lambda"),
    (f"{UPDATE} --loss log two m", 2, f"{KEPT}loss"),
    (f"{UPDATE} --multiclass ovr two m", 2, f"{KEPT}multiclass"),
    (f"{UPDATE} --epochs 3 two m", 2, f"{KEPT}epochs"),
    (f"{UPDATE} --early-stopping 0.1 two m", 2, f"{KEPT}early-stopping"),
    (f"{UPDATE} -w balanced two m", 2, "-w balanced needs the number of rows, which --update"),
    (f"{UPDATE} -w 9 2 two m", 2, "-w 9: no class has this label; the labels are"),
    (f"{UPDATE} --update-rate 0 two m", 2, "must be > 0 and finite"),
    (f"{UPDATE} --update-rate nan two m", 2, "must be > 0 and finite"),
    (f"{UPDATE} types m", 65, "expected one of the labels"),
    ("sgd --update kernel two m", 65, "kernel: expected a linear model to update, found another"),
    ("sgd --update scaled two m", 65, "expected a model without --scale to update"),
    ("sgd --update sure two m", 65, "expected a model without -b 1 to update"),
    ("sgd --update share two m", 65, "expected a model without -n to update"),
    ("sgd --update map two m", 65, "expected a model without random features to update"),
    # prediction and certification
    ("predict - - out", 2, "standard input is both the data and MODEL_FILE"),
    ("predict -c 1 two kernel out", 2, "-c is an option of"),
    ("predict certify kernel two", 2, "the order is TRAIN_FILE MODEL_FILE"),
    ("predict certify two kernel out", 2, "unexpected extra argument"),
    ("predict certify --scores two kernel", 2, "--scores is an option of"),
    ("predict certify -w 7 2 two kernel", 2, "-w 7: no class has this label"),
    ("predict certify blank kernel", 65, "blank"),
    ("predict certify types kernel", 65, "types:1:1: expected one of the labels"),
    ("predict export c --no-header kernel m", 2, "are for the rows of --data"),
    ("predict export c --format csv kernel m", 2, "are for the rows of --data"),
    # precomputed kernels
    ("randsvm -t 4 --scale minmax two m", 2, "--scale does not go with -t precomputed"),
    ("randsvm -t 4 --zero-based two m", 2, "--zero-based does not go with -t precomputed"),
    ("randsvm -t 4 --components 20 two m", 2, "--components: random features are for -t rbf and"),
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refusals")
    y, X = gaussians(60)
    two = Data(y, X).save(folder / "two")
    Data(1.0 + (y > 0) + 2 * (X[:, 0] > X[:, 1]), X).save(folder / "types")
    (folder / "qids").write_text("".join(f"{i % 2} qid:{i % 3} 1:{i}\n" for i in range(12)))
    (folder / "words").write_text("spam 1:1\nham 1:2\n")
    (folder / "halves").write_text("1.5 1:1\n2 1:2\n")
    (folder / "one").write_text("1 1:1\n1 1:2\n")
    (folder / "rare").write_text("".join(f"{+1 if i < 10 else -1} 1:{i}\n" for i in range(60)))
    (folder / "log").write_text('{"event": "notice", "text": "yesterday"}\n')
    (folder / "zeros").write_bytes(b"\0" * 9)
    (folder / "blank").write_text("\n")
    run_train("randsvm", "-q", two, folder / "kernel")
    for name, *words in (
        ("linear",),
        ("scaled", "--scale", "minmax"),
        ("sure", "-b", 1),
        ("share", "-s", "one-class", "-n", 0.1),
        ("map", "-t", "rbf", "--components", 9),
    ):
        run_train("sgd", "-q", *words, two, folder / name)
    return folder


@pytest.mark.parametrize(("line", "code", "reason"), LINES, ids=[line for line, *_ in LINES])
def test_a_refused_line_has_its_code_and_reason_and_touches_no_file(
    inputs, tmp_path, command, line, code, reason
):
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    words = line.split()
    ended = command(*words) if words[0] == "predict" else command("train", *words)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert re.search(re.escape(reason), ended.stderr.splitlines()[-1])
    assert "Traceback" not in ended.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
