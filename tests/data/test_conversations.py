"""Conversations of a user's own: how files have them, what of them is learnt, and what is said of bad ones."""

import gzip
import json

import pytest

from regard.data.batching import IGNORED
from regard.data.conversations import Chatting, Conversation, Dialogues, read_conversations, without_oldest
from regard.data.corpus import Pair
from regard.data.sources import PairList
from regard.errors import ConfigError, FileError
from regard.text.characters import CharacterTokenizer
from regard.text.chat_template import IM_END, IM_START, Message

SAID = [
    Message("system", "be brief"),
    Message("user", "hi"),
    Message("assistant", " oh <|im_end|>"),
    Message("user", "so\n"),
    Message("assistant", "no\n"),
]
RECORDS = [{"role": one.role, "content": one.content} for one in SAID]


@pytest.fixture
def tokenizer():
    letters = CharacterTokenizer.train(["system user assistant be brief hi oh so no <|im_end|>\n"], 60)
    return letters.with_specials((IM_START, IM_END))


def by_hand(tokenizer, messages):
    """ChatML and what is learnt of it, written out letter by letter."""
    start, end = tokenizer.special_ids[IM_START], tokenizer.special_ids[IM_END]
    ids, learnt = [], []
    for message in messages:
        head = [start, *tokenizer.encode(f"{message.role}\n")]
        body = [*tokenizer.encode(message.content), end]
        ids += [*head, *body, *tokenizer.encode("\n")]
        said = message.role == "assistant" and message.learnt
        learnt += [False] * len(head) + [said] * len(body) + [False]
    return ids, learnt


@pytest.mark.parametrize("first_is_learnt", [True, False])
def test_only_what_the_assistant_says_is_learnt_with_its_end(tokenizer, first_is_learnt):
    messages = (*SAID[:2], SAID[2]._replace(learnt=first_is_learnt), *SAID[3:])
    how = Chatting(tokenizer, window=211)
    batch = how.batch(how.encode([Conversation(messages), Conversation(messages[:3])][: 1 + first_is_learnt]))
    ids, learnt = by_hand(tokenizer, messages)
    assert batch.inputs.tokens.rows()[0] == ids[:-1]
    assert batch.targets[0].tolist() == [
        token if said else IGNORED for token, said in zip(ids[1:], learnt[1:], strict=True)
    ]


def test_what_follows_the_prompt_is_what_was_trained(tokenizer):
    how = Chatting(tokenizer, window=211)
    ids, learnt = by_hand(tokenizer, SAID)
    for answer in (2, 4):
        prompt = how.prompts([SAID[:answer]]).tokens.rows()[0]
        assert prompt == ids[: len(prompt)]
        assert learnt[len(prompt)]
        assert not learnt[len(prompt) - 1]


def test_a_window_drops_the_oldest_turns_and_never_the_system(tokenizer):
    ids, _ = by_hand(tokenizer, [SAID[0], *SAID[3:]])
    (found,) = Chatting(tokenizer, window=len(ids)).encode([Conversation(tuple(SAID))])
    assert found.source == ids
    (found,) = Chatting(tokenizer, window=7).encode([Conversation(tuple(SAID))])
    assert found.source == ids[-8:]
    assert any(found.target)
    assert without_oldest(tuple(SAID)) == (SAID[0], *SAID[3:])
    assert without_oldest((SAID[0], SAID[3])) is None


def test_pairs_of_a_corpus_are_conversations():
    found = Dialogues(PairList([Pair("hi", "oh")])).example("train", 0)
    assert found == Conversation((Message("user", "hi"), Message("assistant", "oh")))


CSV = "n,speaker,text\n1,user,hi\n1,assistant,oh\n2,user,so\n2,assistant,no\n"
GOOD = {
    "a.jsonl": json.dumps({"messages": RECORDS}) + "\n",
    "a.txt": json.dumps({"id": 3, "messages": RECORDS}) + "\n",
    "parts.jsonl": json.dumps(
        {"messages": [*RECORDS[:-1], {"role": "assistant", "content": [{"type": "text", "text": "no\n"}]}]}
    )
    + "\n",
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("packed", [False, True])
def test_messages_are_read(tmp_path, name, packed):
    path = tmp_path / (name + (".gz" if packed else ""))
    path.write_bytes(gzip.compress(GOOD[name].encode()) if packed else GOOD[name].encode())
    assert read_conversations(path) == [Conversation(tuple(SAID))]


def test_rows_are_read_by_conversation_or_by_the_systems_turns(tmp_path):
    hi = (Message("user", "hi"), Message("assistant", "oh"))
    so = (Message("user", "so"), Message("assistant", "no"))
    table, own = tmp_path / "a.csv", tmp_path / "b.csv"
    table.write_text(CSV.replace("n,speaker", "conversation,role", 1))
    own.write_text(CSV)
    assert read_conversations(table) == [Conversation(hi), Conversation(so)]
    columns = {"conversation": "n", "role": "speaker", "content": "text"}
    assert read_conversations(own, "csv", columns) == [Conversation(hi), Conversation(so)]
    lines = tmp_path / "c.jsonl"
    rows = [{"role": "system", "content": "be"}, *({"role": one.role, "content": one.content} for one in hi)] * 2
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_conversations(lines) == [Conversation((Message("system", "be"), *hi))] * 2


def user(content):
    return {"role": "user", "content": content}


BAD = {
    "nobody": ({"messages": [user("hi")]}, "nothing that the assistant says"),
    "unlearnt": ({"messages": [user("hi"), {**RECORDS[2], "weight": 0}]}, "nothing that the assistant says"),
    "weight": ({"messages": [user("hi"), {**RECORDS[2], "weight": 2}]}, "has the weight 2"),
    "role": ({"messages": [{"role": "tool", "content": "x"}]}, "has the role 'tool'"),
    "empty": ({"messages": []}, "not a list of messages"),
    "text": ({"messages": "hi"}, "is 'hi', not a list of messages"),
    "no content": ({"messages": [{"role": "user"}]}, "message 1 of"),
    "picture": ({"messages": [user([{"type": "image_url", "image_url": "x"}])]}, "not a text"),
    "null": ({"messages": [user(None)]}, "has the content None, not a text"),
    "blank": ({"messages": [user(" ")]}, "is empty"),
    "half": ({"messages": [user("\ud800")]}, "half of a character"),
    "other keys": ({"prompt": "hi", "completion": "oh"}, 'has no "messages"'),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_named_in_one_sentence(tmp_path, name):
    record, said = BAD[name]
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps({"messages": RECORDS}) + "\n" + json.dumps(record) + "\n")
    if name == "other keys":
        path.write_text(json.dumps(record) + "\n")
    with pytest.raises(FileError) as refusal:
        read_conversations(path)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert f"line {1 if name == 'other keys' else 2}" in str(refusal.value)


def test_rows_that_never_end_a_conversation_and_tables_of_something_else_are_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("role,content\nuser,hi\nassistant,oh\n")
    with pytest.raises(FileError, match="does not say where a conversation ends"):
        read_conversations(path)
    path.write_text("english,french\nhi,salut\n" * 2)
    with pytest.raises((FileError, ConfigError)):
        read_conversations(path)
    text = tmp_path / "a.txt"
    text.write_text("just some text\n")
    with pytest.raises(FileError, match="no table of messages"):
        read_conversations(text)
    with pytest.raises(ConfigError, match="name one or the other"):
        read_conversations(path, "csv", {"messages": "x", "role": "y"})
    with pytest.raises(ConfigError, match="has no conversations"):
        read_conversations(path, "whole")
