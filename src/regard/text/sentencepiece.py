r"""A tokenizer from SentencePiece's `.model` alone, as T5, LLaMA 1 and 2 and Mistral ship it.

unigram   the cut of a text whose pieces' scores add up to most (Kudo 2018, §3.1), found by Viterbi
bpe       of all neighbours that make a piece those are joined whose piece has the highest score

The engine is one of the `tokenizers` library, so that it is saved as everybody's tokenizer.json. First comes what the
file's rules make of characters; where it says so one blank of several; a blank before the text; and `▁` for each blank.
The library looks rules up for what is seen as one character, SentencePiece for the longest sequence that has one: they
differ where marks stand on a character for which only a part has a rule, and for kana of half width with a mark. A text
that spells a byte, `<0x0A>`, is that byte for the library's unigram where a letter of it is unknown.

The file does not say which tokens stand round a text. It is known of the kinds of models that are read here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, processors
from tokenizers import Tokenizer as Engine

from regard.errors import FileError
from regard.files import read_json
from regard.text.sentencepiece_file import CONTROL, LARGEST, NORMAL, UNKNOWN, SentencePieceFile, read_sentencepiece_file

NAMES = ("tokenizer.model", "spiece.model")
"""What the file is called where there are several."""
SENTINELS = 100
"""Of T5, behind its pieces, where its settings do not say how many."""
ROUND: Mapping[str, tuple[bool, bool]] = {"t5": (False, True), "llama": (True, False), "mistral": (True, False)}
"""Kind of model → whether a text begins with bos and whether it ends with eos, where its settings do not say."""


def sentencepiece_in(folder: Path) -> Path | None:
    """The one file of this kind in a folder, or None."""
    found = sorted(path for path in folder.glob("*.model") if path.is_file())
    named = [path for path in found if path.name in NAMES]
    if len(found) > 1 and len(named) != 1:
        said = " and ".join(path.name for path in found)
        raise FileError(f"{folder} has {said}", "leave the one of its tokenizer there alone")
    return next(iter(named or found), None)


def open_sentencepiece(path: Path) -> tuple[Engine, dict[str, int]]:
    """The engine, with what the files beside it add, and the ids of unk, bos, eos and pad."""
    record = read_sentencepiece_file(path)
    if record.algorithm not in ("unigram", "bpe"):
        raise FileError(f"{path} cuts texts by {record.algorithm!r}, which is not known here", "use unigram or bpe")
    if record.unknown_to_us:
        raise FileError(
            f"{path} has {' and '.join(record.unknown_to_us)}, which are not known here",
            "use a folder that has a tokenizer.json",
        )
    texts = [piece.text for piece in record.pieces]
    if len({*texts}) < len(texts):
        twice = next(text for place, text in enumerate(texts) if texts.index(text) < place)
        raise FileError(f"{path} has the piece {twice!r} twice", "copy it again")
    engine = _engine(record)
    engine.normalizer = _normalizer(record, path)
    hidden = [piece.text for piece in record.pieces if piece.kind in (UNKNOWN, CONTROL)]
    engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in hidden])
    _add_what_stands_beside(engine, path.parent, record.ids)
    return engine, record.ids


def _engine(record: SentencePieceFile) -> Engine:
    unknown = record.ids.get("unk")
    if record.algorithm == "bpe":
        ids = {piece.text: place for place, piece in enumerate(record.pieces)}
        name = None if unknown is None else record.pieces[unknown].text
        engine = Engine(
            models.BPE(
                vocab=ids,
                merges=_merges(record),
                unk_token=name,
                fuse_unk=True,
                byte_fallback=record.byte_fallback,
            )
        )
    else:
        ordinary = [piece.score for piece in record.pieces if piece.kind == NORMAL]
        never = 20 * (min(ordinary, default=0.0) - 10)  # no text is to spell a byte or a token that controls
        scored = [(piece.text, piece.score if piece.kind == NORMAL else never) for piece in record.pieces]
        engine = Engine(models.Unigram(scored, unknown, record.byte_fallback))
    steps: list[Any] = [decoders.Replace("▁", " "), *([decoders.ByteFallback()] if record.byte_fallback else [])]
    blanks = LARGEST if record.single_blanks else int(record.prefix)
    blank = [decoders.Strip(" ", blanks, 0)] if blanks else []
    engine.decoder = decoders.Sequence([*steps, decoders.Fuse(), *blank])
    return engine


def _merges(record: SentencePieceFile) -> list[tuple[str, str]]:
    """Every pair that makes a piece, those of the highest scores first."""
    ordinary = {piece.text: piece.score for piece in record.pieces if piece.kind == NORMAL}
    ranked = sorted(ordinary, key=lambda text: -ordinary[text])  # stable: of equal ones the first in the file
    return [
        (text[:cut], text[cut:])
        for text in ranked
        for cut in range(1, len(text))
        if text[:cut] in ordinary and text[cut:] in ordinary
    ]


def _normalizer(record: SentencePieceFile, path: Path) -> normalizers.Normalizer:
    """What is done to a text first."""
    steps: list[normalizers.Normalizer] = []
    if record.rules:
        try:
            steps.append(normalizers.Precompiled(record.rules))
        except Exception as error:  # the library has no other kind
            raise FileError(
                f"{path} has rules for characters that cannot be read ({error})", "copy it again"
            ) from error
    if record.single_blanks:
        steps += [normalizers.Replace(Regex(r"\A +"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    steps += [normalizers.Prepend("▁")] if record.prefix else []
    steps += [normalizers.Replace(" ", "▁")]
    steps += [normalizers.Replace(Regex(r"▁+\z"), "")] if record.single_blanks else []
    return normalizers.Sequence(steps)


def _add_what_stands_beside(engine: Engine, folder: Path, ids: Mapping[str, int]) -> None:
    """Tokens that other files add, and the template of the kind of model that config.json names."""
    said, config, added = (
        read_json(folder / name, "copy it again") if (folder / name).is_file() else {}
        for name in ("tokenizer_config.json", "config.json", "added_tokens.json")
    )
    kind = config.get("model_type")
    if kind is not None and kind not in ROUND:
        raise FileError(
            f"how a {str(kind)[:40]!r} model numbers the pieces of its .model is not known here",
            f"use a folder that has a tokenizer.json; {', '.join(ROUND)} are read without",
        )
    size = engine.get_vocab_size()
    if kind == "t5":
        many = said.get("extra_ids", SENTINELS)
        if not isinstance(many, int) or not 0 <= many <= 10_000:
            raise FileError(f"{folder} has extra_ids = {str(many)[:40]}", "give a number from 0 to 10,000")
        _add(engine, [f"<extra_id_{many - 1 - place}>" for place in range(many)])
    _add(engine, _following(added, engine.get_vocab(), size, folder))
    begins, ends = ROUND.get(str(kind), (False, False))
    begins, ends = (said.get(f"add_{name}_token", usual) for name, usual in (("bos", begins), ("eos", ends)))
    round_texts = {role: ids.get(role) for role, there in (("bos", begins), ("eos", ends)) if there}
    missing = next((role for role, token in round_texts.items() if token is None), None)
    if missing:
        raise FileError(f"{folder} puts {missing} round every text and its .model has none", "copy both again")
    names = {role: str(engine.id_to_token(token)) for role, token in round_texts.items() if token is not None}
    if names:
        parts = [names.get("bos"), "$", names.get("eos")]
        single = [f"{part if part != '$' else '$A'}:0" for part in parts if part]
        pair = [f"{part if part != '$' else '$B'}:1" for part in parts if part]
        tokens = [(name, engine.token_to_id(name)) for name in names.values()]
        engine.post_processor = processors.TemplateProcessing(single=single, pair=single + pair, special_tokens=tokens)


def _following(added: Mapping[str, Any], known: Mapping[str, int], size: int, folder: Path) -> list[str]:
    """Of added_tokens.json what the engine has not, in the order of its ids, which must follow the last."""
    new = {name: token for name, token in added.items() if name not in known}
    first = max(known.values(), default=size - 1) + 1
    numbered = sorted((token, name) for name, token in new.items() if type(token) is int)
    if [token for token, _ in numbered] != list(range(first, first + len(new))):
        raise FileError(
            f"{folder / 'added_tokens.json'} does not number its tokens from {first:,}, which is the next one",
            "copy it again",
        )
    return [name for _, name in numbered]


def _add(engine: Engine, names: Sequence[str]) -> None:
    engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
