"""The explorer's server: this machine alone, no path is opened, bad input gets a sentence, and memory is bounded."""

import base64
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import regard
from regard.api.exploring.questions import QUESTIONS
from regard.api.exploring.reading import A_SESSION, GoneError, TextStore, Wanted, read
from small_models import small_model

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from regard.serving.explorer import explorer

TEXT = "the cat sat on a mat"


@pytest.fixture(scope="module")
def models():
    torch.manual_seed(7)
    return {"gpt": small_model("language_modelling"), "dates": small_model("translation")}


@pytest.fixture
def client(models):
    return TestClient(explorer(models, longest=50), base_url="http://127.0.0.1:8421", headers={"x-session": "one"})


def asked(client, what="read", **body):
    return client.post(f"/api/{what}", json=body)


def test_rows_come_over_the_wire_exactly(client, models):
    found = asked(client, model="gpt", text=TEXT, new_tokens=0).json()
    layer = found["layers"][1]["name"]
    answer = asked(client, "ask/rows", reading=found["reading"], layer=layer, head=2, rows=[4, 1]).json()["weights"]
    sent = np.frombuffer(base64.b64decode(answer["data"]), "<f4").reshape(answer["shape"])
    expected = models["gpt"].look(TEXT).weights(layer, 2, rows=[4, 1]).numpy()
    np.testing.assert_array_equal(sent, expected)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example:8421"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": ""}, 421),
        ({"host": "["}, 421),
        ({"host": "[::1"}, 421),
        ({"origin": "http://["}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-length": str(2**40)}, 413),
        ({"content-length": "-1"}, 411),
    ],
)
def test_what_does_not_come_from_this_machines_own_page_is_refused(client, headers, status):
    found = client.post("/api/read", json={"model": "gpt", "text": TEXT}, headers=headers)
    assert found.status_code == status
    assert "error" in found.json()
    assert ("shorter" in found.json()["remedy"]) == (status == 413)
    assert "script-src 'self'" in found.headers["content-security-policy"]


@pytest.mark.parametrize("host", ["127.0.0.1:8421", "localhost:8421", "[::1]:8421", "127.0.0.1"])
def test_this_machines_own_names_are_answered(client, host):
    assert client.get("/api/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "path", ["../../pyproject.toml", "assets/../html.py", "assets/%2e%2e/html.py", "/etc/passwd", "assets", "%00"]
)
def test_no_path_is_ever_opened(client, path):
    assert client.get(f"/{path}").status_code == 404


def test_the_page_and_its_programs_are_there(client):
    assert "explorer/main.js" in client.get("/").text
    assert client.get("/assets/explorer/main.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"model": "gpt", "text": ""}, "empty"),
        ({"model": "gpt", "text": "a " * 26}, "has 52 tokens and the explorer reads at most 50"),
        ({"model": "dates", "text": "a", "target": "a " * 26}, "start it with max-tokens 52"),
        ({"model": "other", "text": "a"}, "there is no model 'other'"),
        ({"model": "gpt", "text": "a", "path": "/etc/passwd"}, "path: Extra inputs"),
        ({"model": "gpt", "text": 7}, "text: Input should be a valid string"),
        ({"model": "gpt"}, "text: Field required"),
        ({"model": "gpt", "text": "a", "step": 3}, "kept no weights"),
        ({"model": "gpt", "text": "a", "new_tokens": 10**9}, "less than or equal to 1024"),
    ],
)
def test_bad_input_gets_a_sentence(client, body, said):
    found = asked(client, **body)
    assert found.status_code in (200, 422)
    assert said in " ".join(found.json().values())


@pytest.mark.parametrize(
    ("what", "body", "said"),
    [
        ("rows", {"layer": "decoder.9.self", "head": 0, "rows": [0]}, "was not seen"),
        ("rows", {"layer": "decoder.0.self", "head": 9, "rows": [0]}, "no head 9"),
        ("rows", {"layer": "decoder.0.self", "head": 0, "rows": [99]}, "no row 99"),
        ("rows", {"layer": "decoder.0.self", "head": 0, "rows": [0] * 99}, "at most 64"),
        ("rows", {"layer": "decoder.0.self", "head": 0, "rows": []}, "at least 1"),
        ("window", {"layer": "decoder.0.self", "head": 0, "rows": [0, 10**9], "columns": [0, 1]}, "up to 21"),
        ("window", {"layer": "decoder.0.self", "head": 0, "rows": [0, 1], "columns": [0, 1], "part": 3}, "batch=3"),
        ("passwords", {}, "there is no question 'passwords'"),
    ],
)
def test_a_question_about_what_is_not_there_gets_a_sentence(client, what, body, said):
    reading = asked(client, model="gpt", text=TEXT, new_tokens=0).json()["reading"]
    found = asked(client, f"ask/{what}", reading=reading, **body)
    assert found.status_code in (200, 422)
    assert said in " ".join(found.json().values())


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"NaN", b"1e999", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 20_000]
)
@pytest.mark.parametrize("path", ["/api/read", "/api/ask/rows"])
def test_a_request_that_is_no_object_gets_a_sentence(client, path, body):
    found = client.post(path, content=body, headers={"content-type": "application/json"})
    assert found.status_code in (400, 422)
    assert set(found.json()) == {"error", "remedy"}


@pytest.mark.parametrize("value", [None, -1, 10**30, 1.5, "\x00", [[]], {"a": {"b": []}}], ids=ascii)
def test_whatever_a_field_holds_the_answer_is_a_sentence_or_an_answer(client, value):
    """Every field of every question that may be asked of a text."""
    found = asked(client, model="gpt", text=TEXT, new_tokens=2).json()
    known = {"layer": found["layers"][0]["name"], "head": 0, "row": 0, "key": 0, "rows": [0], "columns": [0, 1]}
    known |= {"without": ["decoder.0.self:0"], "word": "a", "sentences": ["a cat", "a mat"], "other": "a cat"}
    known |= {"format": "json"}
    for what, (question, _) in QUESTIONS.items():
        fields = {name: known[name] for name in question.model_fields if name in known}
        if what == "window":
            fields["rows"] = [0, 1]
        for name in [*question.model_fields, "unheard_of"]:
            answer = asked(client, f"ask/{what}", reading=found["reading"], **{**fields, name: value})
            assert answer.status_code in (200, 422), (what, name)
            assert answer.status_code == 200 or answer.json()["error"], (what, name)


@pytest.mark.parametrize(
    "text",
    [
        "שלום עולם",
        "مرحبا",
        "你好世界",
        "👩‍👩‍👧‍👦",
        "\u200b\u200b",
        "\u202eabc\u202c",
        "\x00\x01",
        "a\u0301" * 9,
        "<script>",
        "<eos>",
        "x" * 49,
    ],
    ids=ascii,
)
def test_any_writing_is_read_and_asked_about(client, text):
    found = asked(client, model="gpt", text=text, new_tokens=2)
    assert found.status_code == 200
    reading, layer = found.json()["reading"], found.json()["layers"][0]["name"]
    for what, more in {
        "tokens": {},
        "measures": {},
        "steps": {"layer": layer, "head": 0, "row": 0},
        "window": {"layer": layer, "head": 0, "rows": [0, 1], "columns": [0, 1], "words": True},
        "path": {"new_tokens": 2},
        "export": {"layer": layer, "format": "svg"},
    }.items():
        assert "error" not in asked(client, f"ask/{what}", reading=reading, **more).json(), what


def test_a_reading_is_its_own_pages_alone(client):
    reading = asked(client, model="gpt", text=TEXT, new_tokens=0).json()["reading"]
    question = {"reading": reading, "layer": "decoder.0.self"}
    assert "error" not in client.post("/api/ask/thumbs", json=question).json()
    assert client.post("/api/ask/thumbs", json=question, headers={"x-session": "another"}).json()["gone"]
    nameless = client.post("/api/ask/thumbs", json=question, headers={"x-session": "../x"}).json()
    assert "does not say which page" in nameless["error"]


def test_the_store_forgets_the_longest_unused_and_keeps_the_newest(models):
    one = read("gpt", models["gpt"], Wanted(TEXT, new_tokens=0))
    kept = one.seen.forwards[0].layers["decoder.0.self"][0]
    numbers = kept.query.numel() + kept.new_keys.numel() + kept.new_values.numel()
    assert one.bytes == 2 * 4 * numbers
    asked, alone = QUESTIONS["path"], one.bytes
    asked[1](one, asked[0](new_tokens=3))
    assert one.bytes == alone + 3 * 2 * 8 * models["gpt"].module.config.vocabulary
    store = TextStore(memory=2 * one.bytes)
    names = [store.put(session, one) for session in "abc"]
    with pytest.raises(GoneError):
        store.get("a", names[0])
    assert store.get("b", names[1]) is one
    store.put("d", one)  # c was used before b
    with pytest.raises(GoneError):
        store.get("c", names[2])
    assert TextStore(memory=1).put("a", one)  # what is larger than the bound is kept as long as it is alone
    large = TextStore()
    names = [large.put("a", one) for _ in range(A_SESSION + 1)]
    with pytest.raises(GoneError):
        large.get("a", names[0])


def test_a_checkpoint_that_vanishes_while_the_page_is_open_is_in_memory(models, tmp_path):
    models["gpt"].save(tmp_path / "gpt")
    client = TestClient(
        explorer({"gpt": regard.load(tmp_path / "gpt", "cpu")}),
        base_url="http://127.0.0.1:8421",
        headers={"x-session": "one"},
    )
    before = asked(client, model="gpt", text=TEXT, new_tokens=3).json()["output"]
    shutil.rmtree(tmp_path / "gpt")
    found = asked(client, model="gpt", text=TEXT, new_tokens=3).json()
    assert found["output"] == before
    assert "error" not in asked(client, "ask/path", reading=found["reading"], new_tokens=2).json()


def test_what_is_switched_off_for_one_is_on_for_another(client, models):
    reading = asked(client, model="dates", text=TEXT).json()["reading"]
    heads = ["decoder.0.cross:0", "decoder.1.cross:2", "encoder.1.self:1"]
    expected = [models["dates"].what_if(TEXT, [head]).change for head in heads]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda head: asked(client, "ask/what_if", reading=reading, without=[head]).json(), heads))
    assert [one["change"] for one in found] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("what", "body", "said"),
    [
        ("meaning", {"word": "cat", "sentences": ["the cat sat"] * 13}, "13 sentences"),
        ("meaning", {"word": "cat", "sentences": ["the cat sat " * 200]}, "2,400 characters in a sentence"),
        ("meaning", {"word": "w" * 101, "sentences": ["the cat sat", "a cat"]}, "no word"),
        (
            "meaning",
            {"word": "cat", "sentences": ["a cat"] * 2, "beside": [{"word": "cat", "sentence": "a cat"}] * 7},
            "7 words to compare it with",
        ),
        ("looks", {"word": "w" * 101}, "no word of the text"),
        ("patching", {"other": "a" * 10_001}, "10,001 characters"),
        ("path", {"forced": [1] * 201}, "201 tokens were chosen already"),
        ("beam", {"forced": [1] * 201}, "201 tokens were chosen already"),
    ],
)
def test_too_much_of_what_can_be_typed_is_an_answer_and_no_error_of_the_page(client, what, body, said):
    """A browser writes every other status than 200 to its console."""
    reading = asked(client, model="gpt", text=TEXT, new_tokens=2).json()["reading"]
    found = asked(client, f"ask/{what}", reading=reading, **body)
    assert found.status_code == 200
    assert said in found.json()["error"]
    assert "anew" not in found.json()["remedy"]
