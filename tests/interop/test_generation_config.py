"""What a folder says of how its model writes: ends, bans and demands, token for token as `transformers` obeys them."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rounding import assert_close

transformers = pytest.importorskip("transformers")

from tiny_folders import FOLDERS, write  # noqa: E402

import regard  # noqa: E402
from regard.decoding.filters import Generated, apply  # noqa: E402
from regard.decoding.strategies import Beam, Greedy, Sample, Strategy  # noqa: E402
from regard.errors import FileError, InputError  # noqa: E402
from regard.interop.huggingface import family_of  # noqa: E402
from regard.interop.writing import write_folder  # noqa: E402

logging.getLogger("transformers").setLevel(logging.ERROR)
TEXTS = ["The roses by the bank", "low", "She doesn't know; they don't either. What's that wide river?"]
LIMIT = 13
CROSSING = ("t5", "marian")
GENERATION = "generation_config.json"


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def loaded(folder: Path) -> regard.Model:
    """Regard's in float64, so that rounding decides nothing."""
    model = regard.load(folder)
    model.module.double()
    return model


def own(model: regard.Model, strategy: Strategy | None) -> list[tuple[int, ...]]:
    return [one.ids for one in model.hypotheses(TEXTS, strategy, LIMIT)]


@torch.no_grad()
def expected(folder: Path, ends: list[int], **how: object) -> list[tuple[int, ...]]:
    """What `generate` gives, each text up to the first token that ends it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    auto = next(kind.auto for kind in FOLDERS.values() if kind.peer.model == architecture(folder))
    model = getattr(transformers, auto).from_pretrained(folder, attn_implementation="sdpa").double().eval()
    crossing = model.config.is_encoder_decoder
    tokenizer.padding_side = "right" if crossing else "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    read = tokenizer(TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False)
    cache = model.config.model_type != "t5"  # Hugging Face's is as deep as T5's encoder
    found = model.generate(**read, max_new_tokens=LIMIT, use_cache=cache, pad_token_id=tokenizer.pad_token_id, **how)
    rows = found[:, 1 if crossing else read["input_ids"].shape[1] :].tolist()
    cut = [next((place + 1 for place, token in enumerate(row) if token in ends), len(row)) for row in rows]
    return [tuple(row[:place]) for row, place in zip(rows, cut, strict=True)]


def architecture(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text())["architectures"][0])


def free(model: regard.Model, banned: list[int], first: int | None = None) -> list[tuple[int, ...]]:
    """What the model writes when nothing ends it, without these tokens."""
    never = model.module.config.vocabulary - 1  # a row that no token has
    table = type(model.decoding)(
        eos_ids=(never,), suppressed=(*banned, never, model.tokenizer.eos_id), forced_bos=first
    )
    return [ids for strategy in (Greedy(), Beam(4)) for ids in own(replace(model, decoding=table), strategy)]


def favourites(model: regard.Model, count: int) -> list[int]:
    """The token it writes most, the one it writes most without that, and so on: what is worth forbidding."""
    found: list[int] = []
    for _ in range(count):
        every = [token for ids in free(model, found) for token in ids]
        found.append(max(sorted(set(every)), key=every.count))
    return found


def says(name: str, model: regard.Model) -> dict[str, object]:
    """A generation config that has an effect: of this model's favourite tokens some are banned, some end texts."""
    banned = favourites(model, 3)
    written = free(model, banned, banned[0] if name == "t5" else None)
    late = [token for ids in written for token in ids[3:] if token not in ids[:3]] or [written[0][-1]]
    end = model.tokenizer.eos_id  # first, though it is hardly ever written: the others end texts too
    ends = [end, late[0], late[-1]]
    said: dict[str, object] = {"eos_token_id": list(dict.fromkeys(ends))}
    said["bad_words_ids"] = [[token] for token in (*banned, late[0])]
    if name == "marian":
        said |= {"renormalize_logits": True, "forced_eos_token_id": end}
    if name == "t5":
        said |= {"forced_bos_token_id": banned[0], "suppress_tokens": [banned[1], end]}
    if name == "gpt":
        said |= {"forced_eos_token_id": banned[1]}
    return said


@pytest.fixture(scope="module", params=["gpt", "llama 3", "t5", "marian"])
def told(request, tmp_path_factory):
    """A folder whose generation_config.json says something, what it says, and the model in it."""
    folder = write(request.param, tmp_path_factory.mktemp("told"))
    said = says(request.param, loaded(folder))
    change(folder / GENERATION, **said)
    return folder, said, loaded(folder)


HOW = {
    "greedy": (Greedy(), {"do_sample": False, "num_beams": 1}),
    "beam": (Beam(4), {"do_sample": False, "num_beams": 4, "length_penalty": 1.0, "early_stopping": False}),
    "sampling": (Sample(top_k=1), {"do_sample": True, "top_k": 1}),
}


@pytest.mark.parametrize("strategy", list(HOW))
def test_texts_end_at_any_of_the_ends_and_hold_nothing_banned_as_in_transformers(told, strategy):
    folder, said, model = told
    mine, how = HOW[strategy]
    found = own(model, mine)
    assert found == expected(folder, said["eos_token_id"], **how)
    banned = {token for (token,) in said["bad_words_ids"]} - set(said["eos_token_id"])
    chosen = (token for ids in found for token in ids[1 if "forced_bos_token_id" in said else 0 : LIMIT - 1])
    assert not (banned | set(said.get("suppress_tokens", []))) & set(chosen)


def test_the_keys_change_what_every_strategy_writes(told):
    """So that the test above compares something."""
    _, said, model = told
    plain = replace(model, decoding=type(model.decoding)())
    for strategy, _ in HOW.values():
        assert own(model, strategy) != own(plain, strategy)
    strategies = [Sample(temperature=3.0), *(strategy for strategy, _ in HOW.values())]
    lengths = {len(ids) for strategy in strategies for ids in own(model, strategy)}
    assert len(lengths) > 1
    assert model.decoding.eos_ids == tuple(said["eos_token_id"])


def test_no_draw_is_of_a_banned_token_and_none_follows_an_end(told):
    _, said, model = told
    ends = set(said["eos_token_id"])
    for seed in range(11):
        for ids in own(model, Sample(temperature=1.7, seed=seed)):
            middle = ids[1:-1] if len(ids) == LIMIT else ids[1:]
            assert not set(model.decoding.suppressed) & set(middle)
            assert not ends & set(ids[:-1])
            assert len(ids) == LIMIT or ids[-1] in ends


def test_a_stream_is_what_is_answered_at_once(told):
    _, _, model = told
    for text in TEXTS:
        assert "".join(model.run(text, stream=True, max_new_tokens=LIMIT)) == model.run(text, max_new_tokens=LIMIT)


def test_older_folders_say_the_same_in_config_json(told, tmp_path):
    folder, said, model = told
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / GENERATION).unlink()
    change(tmp_path / "config.json", **said)
    old = loaded(tmp_path)
    assert old.decoding == model.decoding
    assert own(old, Greedy()) == expected(tmp_path, said["eos_token_id"], do_sample=False)


def test_the_generation_config_is_written_and_read_again(told, tmp_path):
    folder, said, model = told
    model.save(tmp_path / "regard")
    write_folder(tmp_path / "huggingface", model)
    for again in ("regard", "huggingface"):
        assert regard.load(tmp_path / again).decoding == model.decoding
    wanted, found = (json.loads((one / GENERATION).read_text()) for one in (folder, tmp_path / "huggingface"))
    assert found["eos_token_id"] == wanted["eos_token_id"]
    for key in ("forced_eos_token_id", "forced_bos_token_id", "renormalize_logits", "decoder_start_token_id"):
        assert found.get(key) == wanted.get(key), key
    for strategy in ("greedy", "beam"):
        mine, how = HOW[strategy]
        assert expected(tmp_path / "huggingface", said["eos_token_id"], **how) == own(model, mine)


def test_what_is_drawn_from_is_what_transformers_draws_from(told):
    """Bans go before temperature, top-k and top-p."""
    _, said, model = told
    torch.manual_seed(3)
    logits = 3 * torch.randn(5, model.module.config.vocabulary, dtype=torch.float64)
    steps = [transformers.NoBadWordsLogitsProcessor(said["bad_words_ids"], said["eos_token_id"])]
    if "suppress_tokens" in said:
        steps.append(transformers.SuppressTokensLogitsProcessor(said["suppress_tokens"]))
    steps += [transformers.TemperatureLogitsWarper(0.7), transformers.TopKLogitsWarper(29)]
    steps += [transformers.TopPLogitsWarper(0.9)]
    wanted = logits
    for step in steps:
        wanted = step(torch.zeros(5, 1, dtype=torch.long), wanted)
    filters = model.decoding.filters(model.module.config.vocabulary)
    begun = torch.zeros(5, 3, dtype=torch.long), torch.ones(5, dtype=torch.long)  # two written tokens of LIMIT
    stands = Generated(*begun, torch.full((5,), LIMIT))
    found = apply((*filters, *Sample(0.7, 29, 0.9).filters), logits, stands)
    assert_close(found.softmax(-1), wanted.softmax(-1), 1e-12)


def test_the_start_and_the_length_of_generation_config_win(tmp_path):
    folder = write("marian", tmp_path)
    start = loaded(folder).tokenizer.eos_id
    change(folder / GENERATION, decoder_start_token_id=start, max_length=LIMIT + 1, num_beams=2)
    model = loaded(folder)
    assert model.tokenizer.bos_id == start
    assert model.decoding.max_new_tokens == LIMIT
    assert own(model, None) == expected(folder, [model.tokenizer.eos_id])


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"bad_words_ids": [[3], []]}, "bad_words_ids bans a word of no tokens"),
        ({"bad_words_ids": [3]}, "bad_words_ids = [3] is no list of lists"),
        ({"suppress_tokens": ["a"]}, "suppress_tokens = ['a'] is no id"),
        ({"eos_token_id": [True]}, "eos_token_id = [True] is no id"),
        ({"forced_eos_token_id": 10**6}, "id 1000000 is none of the model's"),
        ({"forced_bos_token_id": 3}, "forced_bos_token_id = 3 is an encoder–decoder's"),
        ({"encoder_repetition_penalty": 1.3}, "encoder_repetition_penalty = 1.3 is not known here"),
        ({"repetition_penalty": -1.3}, "repetition_penalty = -1.3 cannot be used"),
        ({"num_beams": 3, "early_stopping": True}, "early_stopping = True is not known here"),
        ({"do_sample": True, "typical_p": 0.1}, "typical_p = 0.1 is not known here"),
    ],
)
def test_keys_that_are_not_known_are_refused_by_name(said, problem, tmp_path):
    folder = write("gpt", tmp_path)
    change(folder / GENERATION, **said)
    with pytest.raises(FileError, match=GENERATION) as refused:
        regard.load(folder)
    assert problem in refused.value.problem


def test_keys_that_change_nothing_are_read(tmp_path):
    """What a full dump of the defaults of older versions holds."""
    folder = write("gpt", tmp_path)
    before = regard.load(folder)
    quiet = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0, "typical_p": 1.0, "top_k": 50}
    quiet |= {"early_stopping": True, "diversity_penalty": 0.0, "num_beam_groups": 1, "bad_words_ids": None}
    quiet |= {"suppress_tokens": None, "begin_suppress_tokens": None, "forced_eos_token_id": None, "num_beams": 1}
    change(folder / GENERATION, **quiet)
    assert regard.load(folder).decoding == before.decoding


@pytest.mark.parametrize("said", [{}, {"top_k": None}])
def test_where_a_file_does_not_say_how_many_are_drawn_from_it_is_as_many_as_in_transformers(said, tmp_path):
    folder = write("llama 3", tmp_path / "told")
    change(folder / GENERATION, do_sample=True, temperature=5.0, **said)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    read = tokenizer(["The river"], return_tensors="pt", return_token_type_ids=False)
    asked = {"max_new_tokens": 1, "output_scores": True, "return_dict_in_generate": True, "pad_token_id": 0}
    drawn = model.generate(**read, **asked).scores[0] > -1e30
    chosen = regard.load(folder).decoding.chosen()
    stands = Generated(read["input_ids"], torch.tensor([read["input_ids"].shape[1]]), torch.tensor([1]))
    with torch.no_grad():
        assert torch.equal(apply(chosen.filters, model(**read).logits[:, -1], stands) > -1e30, drawn)
    assert int(drawn.sum()) == 50


def test_who_draws_from_all_tokens_says_so_to_others(tmp_path):
    folder = write("llama 3", tmp_path / "told")
    change(folder / GENERATION, do_sample=True, top_k=0)
    model = regard.load(folder)
    write_folder(tmp_path / "again", model)
    assert json.loads((tmp_path / "again" / GENERATION).read_text())["top_k"] == 0


def test_a_decoder_that_begins_with_no_token_is_refused(tmp_path):
    folder = write("t5", tmp_path / "told")
    change(folder / GENERATION, decoder_start_token_id=10**6)
    with pytest.raises(FileError, match="begin with token 1000000"):
        regard.load(folder)


def test_a_gap_does_not_hold_the_token_that_ended_the_answer(tmp_path):
    folder = write("t5", tmp_path / "told")
    tokenizer = regard.load(folder).tokenizer
    end = next(i for i in range(tokenizer.size) if tokenizer.token_text(i).isalpha())
    change(
        folder / GENERATION,
        eos_token_id=[1, end],
        forced_bos_token_id=tokenizer.special_ids["<extra_id_0>"],
        forced_eos_token_id=end,
        bad_words_ids=[[i] for i in range(tokenizer.size) if tokenizer.token_text(end) in tokenizer.token_text(i)],
    )
    [answer] = regard.load(folder).answers(["the <extra_id_0> by"], None, 4)
    assert tokenizer.token_text(end) not in answer.record["spans"]["<extra_id_0>"]


def test_where_positions_end_a_continuation_slides_and_what_is_watched_ends(tmp_path):
    model = regard.load(write("gpt", tmp_path / "told"))
    longest = model.module.config.max_positions
    model.decoding.__dict__["max_new_tokens"] = 2 * longest
    model.decoding.__dict__["eos_ids"] = (model.tokenizer.size - 1,)
    text = "The river"
    [found] = model.hypotheses([text], Greedy(), None)
    assert len(found.ids) == 2 * longest or found.ids[-1] == model.tokenizer.size - 1
    with regard.watch(model) as seen:
        [watched] = model.hypotheses([text], Greedy(), None)
        assert len(watched.ids) <= longest - len(model.tokenizer.encode(text)) + 1
        assert watched.ids == found.ids[: len(watched.ids)]
        with pytest.raises(InputError, match="fewer new tokens"):
            model.hypotheses([text], Greedy(), 2 * longest)
    assert seen.layers


@pytest.mark.parametrize("kind", ["gpt", "t5", "marian"])
def test_of_weights_that_are_one_either_name_will_do(kind, tmp_path):
    folder = write(kind, tmp_path / "told")
    before = regard.load(folder).module.state_dict()
    family = family_of(folder)
    tensors = load_file(folder / "model.safetensors")
    original = next(one for one in family.copies.values() if one in tensors and tensors[one].dim() == 2)
    copy = next(one for one, held in family.copies.items() if held == original)
    tensors = {copy if name == original else name: tensor for name, tensor in tensors.items() if name != copy}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    after = regard.load(folder).module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
