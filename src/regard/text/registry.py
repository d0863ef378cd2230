"""The tokenizer in a file or a folder, whoever made it: what the command line's TOKENIZER may be.

tokenizer.json               byte-level BPE, words with an end mark, WordPiece, or characters
a model folder               its tokenizer.json
vocab.json and merges.txt    GPT-2's files, in a folder or named by the first
vocab.txt                    BERT's, in a folder or named; a tokenizer_config.json beside it may say that it is cased,
                             and what is done with accents and Chinese characters
"""

import json
import os
from pathlib import Path

from tokenizers.models import WordPiece

from regard.errors import FileError
from regard.text.characters import CharacterTokenizer
from regard.text.counting import read_texts
from regard.text.tokenizer import Tokenizer, parse_engine
from regard.text.word_bpe import WordBpeTokenizer
from regard.text.wordpiece import CasedWordPieceTokenizer, WordPieceTokenizer, cleaning

KINDS: dict[str, type[Tokenizer]] = {
    "bpe": Tokenizer,
    "bpe_words": WordBpeTokenizer,
    "wordpiece": WordPieceTokenizer,
    "wordpiece_cased": CasedWordPieceTokenizer,
    "characters": CharacterTokenizer,
}
"""What can be trained, by the name it has on the command line."""

_REMEDY = "give a tokenizer.json, a model folder, GPT-2's vocab.json beside its merges.txt, or BERT's vocab.txt"


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer at a path."""
    if os.path.isdir(path):
        for name in ("tokenizer.json", "vocab.json", "vocab.json.gz", "vocab.txt", "vocab.txt.gz"):
            if (path / name).is_file():
                return open_tokenizer(path / name)
        raise FileError(f"{path} holds no tokenizer", _REMEDY)
    if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
        raise FileError(f"{path} does not exist", _REMEDY)
    name = path.name.removesuffix(".gz")
    if name.endswith(".txt"):
        return _bert(path)
    if name == "vocab.json":
        found = [one for one in (path.with_name("merges.txt"), path.with_name("merges.txt.gz")) if one.is_file()]
        if not found:
            raise FileError(f"{path} has no merges.txt beside it", _REMEDY)
        return Tokenizer.from_gpt2(path, found[0])
    return _read(path)


def _read(path: Path) -> Tokenizer:
    """The tokenizer in a tokenizer.json; it may lack Regard's special tokens, which only models need."""
    text = "".join(read_texts([path]))
    try:
        engine, rule = parse_engine(text)
    except ValueError as error:
        raise FileError(f"{path}: {getattr(error, 'problem', error)}", _REMEDY) from error
    if isinstance(engine.model, WordPiece):
        if problem := WordPieceTokenizer.problem_of(engine):
            raise FileError(f"{path}: {problem}", _REMEDY)
        return (WordPieceTokenizer if engine.normalizer.lowercase else CasedWordPieceTokenizer)(engine)
    problems = []
    for kind in (Tokenizer, WordBpeTokenizer, CharacterTokenizer):
        problem = kind.problem_of(engine)
        if problem is None:
            return kind(engine, rule)
        problems.append(problem)
    raise FileError(f"{path}: {problems[0]}", _REMEDY)


def _bert(path: Path) -> Tokenizer:
    """A BERT vocabulary; what is done to texts before it is used, only the settings beside it can say."""
    beside = path.with_name("tokenizer_config.json")
    try:
        settings = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        settings = {}
    said: dict[str, bool | None] = {}
    for name in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
        said[name] = settings.get(name) if isinstance(settings, dict) else None
        if not isinstance(said[name], bool | None):
            raise FileError(f"{beside} has {said[name]!r} as {name}", "write true, false or null")
    cased = said["do_lower_case"] is False
    cleaned = cleaning(
        cased=cased, strip_accents=said["strip_accents"], part_chinese=said["tokenize_chinese_chars"] is not False
    )
    kind = CasedWordPieceTokenizer if cased else WordPieceTokenizer
    return kind.load_vocabulary(path, cased=cased, cleaned=cleaned)
