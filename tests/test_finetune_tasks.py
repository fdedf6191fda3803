"""The files of GLUE and CLUE as they are distributed, and what the fine-tuning recipes prepare from them."""

import argparse
import json
import sys

import harness
import pytest

sys.path.insert(0, str(harness.ROOT / "examples" / "finetune"))
import prepare  # noqa: E402
import tasks  # noqa: E402

# GLUE's files as they are distributed, with | for TAB: a row, one with an open quote, one without a label or cut off
GLUE = {
    "CoLA": 'gj04|1||They drank the pub.;bc01|0|*|"Open quote.;x|||no label',
    "SST-2": 'sentence|label;a fine film |1;"dull |0;no label |',
    "MRPC": '\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String;1|1|2|One .|Two .;0|3|4|"A|B;|5|6|A|B',
    "STS-B": "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2|score;"
    '0|g|f|y|1|n|n|A plane.|An air plane.|5.000;1|g|f|y|1|n|n|"A|B|0.500;2|g|f|y|1|n|n|A|B',
    "QQP": 'id|qid1|qid2|question1|question2|is_duplicate;0|1|2|Why?|How?|0;1|3|4|"Who?|Who?|1;2|5|6|cut off',
    "MNLI": "index|promptID|pairID|genre|sentence1|sentence2|label1|gold_label;"
    '0|1|1e|g|A man.|A person.|entailment|entailment;1|1|1n|g|"A|B|neutral|neutral;2|1|1n|g|A|B|neutral|-',
    "QNLI": 'index|question|sentence|label;0|When?|In 1934.|entailment;1|"A|B|not_entailment;2|A|B',
    "RTE": 'index|sentence1|sentence2|label;0|It rains.|It is wet.|entailment;1|"A|B|not_entailment;2|A|B|',
    "WNLI": 'index|sentence1|sentence2|label;0|A|B|1;1|"A|B|0;2|A|B|',
}


# CLUE's, a JSON object a line: a row, one more, one without a label or one that nobody agreed on
CLUE = {
    "TNEWS": [
        {"label": "108", "label_desc": "news_edu", "sentence": "上课时学生手机响个不停", "keywords": ""},
        {"label": "104", "label_desc": "news_finance", "sentence": "商赢环球", "keywords": "商赢"},
        {"id": 0, "sentence": "没有标签", "label": ""},
    ],
    "IFLYTEK": [
        {"label": "110", "label_des": "社区超市", "sentence": "朴朴快送超市"},
        {"label": "70", "label_des": "工具", "sentence": "手电筒"},
        {"label": "70", "label_des": "工具", "sentence": " "},
    ],
    "AFQMC": [
        {"sentence1": "花呗可以提现吗", "sentence2": "花呗怎么提现", "label": "0"},
        {"sentence1": "借呗", "sentence2": "蚂蚁借呗", "label": 1},
    ],
    "CMNLI": [
        {"sentence1": "新的权利已经足够好了", "sentence2": "每个人都很喜欢", "label": "neutral"},
        {"sentence1": "天亮了", "sentence2": "是白天", "gold_label": "entailment"},
        {"sentence1": "甲", "sentence2": "乙", "label": "-"},
    ],
    "OCNLI": [
        {"level": "medium", "sentence1": "身上裹一件工厂发的棉大衣", "sentence2": "身上穿着衣服", "label": "entailment"},
        {"level": "easy", "sentence1": "没有", "sentence2": "有", "label": "contradiction"},
        {"level": "easy", "sentence1": "甲", "sentence2": "乙", "label": "-"},
    ],
    "CSL": [
        {"id": 1, "abst": "为解决传统均匀的问题", "keyword": ["水声学", "滤波器"], "label": "0"},
        {"id": 2, "abst": "研究了水", "keyword": ["水"], "label": "1"},
    ],
    "CLUEWSC2020": [
        {
            "target": {"span2_index": 7, "span1_index": 2, "span1_text": "猫", "span2_text": "它"},
            "idx": 1,
            "text": "一只猫追老鼠，它跑了",
            "label": "true",
        },
        {
            "target": {"span2_index": 0, "span1_index": 1, "span1_text": "老师", "span2_text": "他"},
            "text": "他老师来了",
            "label": "false",
        },
    ],
}


def glue_file(task):
    return GLUE[task].replace("|", "\t").replace(";", "\r\n" if task == "MRPC" else "\n") + "\n"


def clue_file(task):
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in CLUE[task]) + "\n\n"


def write_task(source, task):
    source.mkdir()
    if task in GLUE:
        for name in ("train", "dev_matched" if task == "MNLI" else "dev"):
            (source / f"{name}.tsv").write_bytes(glue_file(task).encode("utf-8"))
    else:
        for name in ("train.50k" if task == "OCNLI" else "train", "dev"):
            (source / f"{name}.json").write_text(clue_file(task), encoding="utf-8")


@pytest.mark.parametrize("task", [*GLUE, *CLUE])
def test_tasks_in_their_own_layout(task, tmp_path, monkeypatch):
    """Every row with a label arrives, with its quotes; pairs become two inputs with one dictionary."""
    texts = len((tasks.GLUE.get(task) or tasks.CLUE[task]).texts)
    source = tmp_path / task
    write_task(source, task)
    rows = tasks.read_splits(source, task)["train"]
    assert len(rows) == 2 and all(len(row[0]) == texts for row in rows)
    if task in GLUE:
        assert rows[1][0][0].startswith('"') and rows[0][1] in ("0", "1", "5.000", "entailment")
    else:
        assert [label for _, label in rows] == [str(row.get("label", row.get("gold_label"))) for row in CLUE[task][:2]]

    calls = []
    monkeypatch.setattr(prepare, "preprocess", lambda folder, *options: calls.append((folder.name, options)))
    if task in GLUE:
        monkeypatch.setattr(prepare, "load_pieces", lambda args, rows: lambda text: text)
    out = tmp_path / "out"
    (out / "bin").mkdir(parents=True)
    prepare.main(["glue" if task in GLUE else "clue", str(out), "--source", str(source)])
    names = ["input0", "input1"][:texts] + ([] if task == "STS-B" else ["label"])
    assert [name for name, _ in calls] == names
    if texts == 2:
        assert calls[1][1][-1] == out / "bin" / "input0" / "dict.txt"
    if task == "STS-B":  # a regression reads numbers, as text
        assert (out / "bin" / "label" / "valid.label").read_text() == "5.000\n0.500\n"
    # what is written can be read again
    assert list(tasks.read_glue(out / "dev.tsv", "SST-2" if texts == 1 else "RTE")) == rows
    if task in CLUE:  # characters
        assert (out / "train.input0").read_text(encoding="utf-8").splitlines()[0] == " ".join(rows[0][0][0].replace(" ", ""))
    assert json.loads((out / "prepared.json").read_text())["rows"] == 2


def test_gpt2_pieces_are_the_checkpoints(tmp_path):
    """With a byte-level vocabulary of 256 bytes and one merge, and the dictionary of a checkpoint."""
    from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

    letters = list(bytes_to_unicode().values())
    (tmp_path / "encoder.json").write_text(json.dumps({token: i for i, token in enumerate([*letters, "He"])}))
    (tmp_path / "vocab.bpe").write_text("#version\nH e\n", encoding="utf-8")
    (tmp_path / "dict.txt").write_text("".join(f"{i} 1\n" for i in range(257)))
    write_task(tmp_path / "SST-2", "SST-2")
    files = ["--gpt2-encoder-json", tmp_path / "encoder.json", "--gpt2-vocab-bpe", tmp_path / "vocab.bpe"]
    words = ["glue", tmp_path / "out", "--source", tmp_path / "SST-2", *files, "--dict", tmp_path / "dict.txt"]
    prepare.main([str(word) for word in words])
    first = (tmp_path / "out" / "train.input0").read_text().splitlines()[0].split()
    assert "".join(letters[int(i)] for i in first) == "aĠfineĠfilm"
    assert (tmp_path / "out" / "bin" / "input0" / "dict.txt").read_text() == (tmp_path / "dict.txt").read_text()
    with pytest.raises(SystemExit, match="--dict .*missing.txt: no such file"):
        prepare.main([*map(str, words[:-1]), str(tmp_path / "missing.txt")])
    assert prepare.load_pieces(argparse.Namespace(bpe="gpt2", gpt2_encoder_json=files[1], gpt2_vocab_bpe=files[3]), [])(
        "He"
    ) == str(256)


def test_what_csl_and_wsc_ask_stands_in_the_text(tmp_path):
    for task in ("CSL", "CLUEWSC2020"):
        write_task(tmp_path / task, task)
    assert tasks.read_splits(tmp_path / "CSL", "CSL")["dev"][0][0] == ("水声学 滤波器", "为解决传统均匀的问题")
    found = [texts for texts, _ in tasks.read_splits(tmp_path / "CLUEWSC2020", "CLUEWSC2020")["dev"]]
    assert found == [("一只_猫_追老鼠，[它]跑了",), ("[他]_老师_来了",)]


def test_files_of_another_task_are_named(tmp_path):
    (tmp_path / "train.tsv").write_text(glue_file("SST-2"))
    with pytest.raises(SystemExit, match="train.tsv: the first line has no columns sentence1, sentence2, label"):
        list(tasks.read_glue(tmp_path / "train.tsv", "RTE"))
    with pytest.raises(SystemExit, match="dev.tsv: no such file"):
        list(tasks.read_glue(tmp_path / "dev.tsv", "RTE"))
    path = tmp_path / "train.json"
    for text, message in (
        (clue_file("TNEWS"), "train.json: line 1 has no field 'sentence1': not a labelled file of AFQMC"),
        ('{"sentence1": "a", "sentence2": "b", "label": "0"}\n{"sent', "train.json: line 2 is not as AFQMC has it"),
        ("[1]", "train.json: line 1 is not as AFQMC has it"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(SystemExit, match=message):
            list(tasks.read_clue(path, "AFQMC"))
    path.write_text(clue_file("CLUEWSC2020").replace('"span1_index": 2', '"span1_index": 3'), encoding="utf-8")
    with pytest.raises(SystemExit, match="line 1 is not as CLUEWSC2020 has it: span1_index 3 is not where 猫 stands"):
        list(tasks.read_clue(path, "CLUEWSC2020"))
    path.write_text("")
    with pytest.raises(SystemExit, match="train.json: no rows with texts and label for AFQMC"):
        tasks.read_splits(write_and_name(tmp_path, path), "AFQMC")


def write_and_name(folder, path):
    (folder / "dev.json").write_text(clue_file("AFQMC"), encoding="utf-8")
    return folder


def test_classes_of_dev_are_those_of_train():
    row = (("a",), "x")
    with pytest.raises(SystemExit, match="RTE: dev has classes that train has not: y"):
        tasks.check_labels({"train": [row], "dev": [row, (("b",), "y")]}, "RTE")


def test_prepared_by_the_commands_that_are_shown(tmp_path, capsys, monkeypatch):
    """A dry run writes nothing, and shows what fairseq-preprocess is called with."""
    write_task(tmp_path / "RTE", "RTE")
    calls = []
    monkeypatch.setattr(prepare, "preprocess", lambda *options: calls.append([str(option) for option in options]))
    monkeypatch.setattr(prepare, "load_pieces", lambda args, rows: lambda text: text)
    words = ["glue", str(tmp_path / "out"), "--source", str(tmp_path / "RTE")]
    prepare.main([*words, "--dry-run"])
    assert not (tmp_path / "out").exists()
    shown = capsys.readouterr().out.splitlines()[1:]
    prepare.main(words)
    expected = [prepare.preprocess_options(*call) for call in calls]
    assert shown == [prepare.quote([sys.executable, "-m", "fairseq_cli.preprocess", *words]) for words in expected]
