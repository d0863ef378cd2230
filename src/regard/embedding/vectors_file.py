"""Vectors on disk in word2vec's two formats, plain or packed with gzip.

    text      `COUNT WIDTH`, then a line for each word: the word and WIDTH numbers, between single spaces
    binary    the same first line, then for each word: the word, a space, WIDTH little-endian float32, maybe a newline

A file's content says which it is; when writing, a name that ends in .bin or .bin.gz is binary, any other text. Nothing
is believed: memory grows with what was read, never with what the first line claims.
"""

import gzip
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from regard.embedding.vectors import Vectors
from regard.errors import FileError, InputError
from regard.files import opened, writing

WIDEST = 65_536
LONGEST_WORD = 65_536
"""Bytes."""
REMEDY = "give a file of vectors in word2vec's text or binary format, complete"

Row = tuple[bytes, Float32[np.ndarray, "width"]]


def read_vectors(path: Path) -> Vectors:
    """The vectors in a file of either format."""
    with opened(path) as stream:
        count, width = _header(path, stream)
        rows = _text_rows(path, stream, width) if _is_text(stream, width) else _binary_rows(path, stream, width)
        words: dict[str, int] = {}
        kept: list[Float32[np.ndarray, "width"]] = []
        for raw, vector in rows:
            word = _word(path, raw, len(kept) + 1)
            if word in words:
                raise FileError(
                    f"{path} has the word {word!r} twice, as number {words[word]} and {len(kept) + 1}", REMEDY
                )
            if not np.isfinite(vector).all():
                raise FileError(f"{path}: the vector of {word!r} has numbers that are not finite", REMEDY)
            kept.append(vector)
            words[word] = len(kept)
            if len(kept) > count:
                break
        if len(kept) != count:
            held = f"more than {count:,}" if len(kept) > count else f"{len(kept):,}"
            raise FileError(f"{path} says that it has {count:,} words and has {held}", REMEDY)
    return Vectors(tuple(words), np.stack(kept))


def write_vectors(vectors: Vectors, path: Path) -> None:
    """Write a file: binary if its name ends in .bin, packed if it ends in .gz."""
    for word in vectors.words:
        if not word or any(character in word for character in " \n\r"):
            raise InputError(f"the word {word!r} cannot be written: words end at a space", "leave it out")
    name = path.name.removesuffix(".gz")
    with writing(path) as partial, open(partial, "wb") as plain:
        if path.name.endswith(".gz"):
            with gzip.GzipFile("", "wb", fileobj=plain, mtime=0) as packed:
                _write(vectors, packed, name)
        else:
            _write(vectors, plain, name)


def _write(vectors: Vectors, stream: io.BufferedIOBase, name: str) -> None:
    stream.write(f"{len(vectors)} {vectors.width}\n".encode())
    if name.endswith(".bin"):
        for word, vector in zip(vectors.words, vectors.matrix.astype("<f4"), strict=True):
            stream.write(b"%s %s\n" % (word.encode(), vector.tobytes()))
        return
    line = " %.9g" * vectors.width + "\n"  # nine digits give every float32 back
    for word, vector in zip(vectors.words, vectors.matrix, strict=True):
        stream.write((word + line % tuple(vector.tolist())).encode())


def _header(path: Path, stream: io.BufferedReader) -> tuple[int, int]:
    fields = stream.readline(64).split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise FileError(f"{path} does not begin with a line `COUNT WIDTH`", REMEDY)
    count, width = map(int, fields)
    if count < 1 or not 1 <= width <= WIDEST:
        raise FileError(
            f"{path} says that it has {count} words of width {width}, from 1 to {WIDEST} being possible", REMEDY
        )
    return count, width


def _is_text(stream: io.BufferedReader, width: int) -> bool:
    """Whether what follows is a word with numbers in writing; a vector's bytes do not read as such."""
    first, ended, _ = stream.peek(1).lstrip(b"\n").partition(b"\n")
    numbers = first.split(b" ")[1 : width + 1]
    if not ended and len(numbers) > 1:
        numbers.pop()  # it may be cut
    try:
        return bool([float(number) for number in numbers if number.strip()])
    except ValueError:
        return False


def _text_rows(path: Path, stream: io.BufferedReader, width: int) -> Iterator[Row]:
    most = LONGEST_WORD + 32 * width
    number = 1
    while line := stream.readline(most):
        number += 1
        if not line.strip():
            continue
        word, *numbers = line.rstrip(b" \r\n").split(b" ")
        if b"_" in b"".join(numbers):  # Python reads 1_0 as 10
            raise FileError(f"{path}, line {number} is not a word and its numbers (an underscore)", REMEDY)
        if len(numbers) != width:
            raise FileError(f"{path}, line {number} has {len(numbers)} numbers, not {width}", REMEDY)
        try:
            with np.errstate(over="ignore"):  # it becomes infinite, which is refused
                vector = np.array([float(number) for number in numbers]).astype(np.float32)
        except ValueError as error:
            raise FileError(f"{path}, line {number} is not a word and its numbers ({error})", REMEDY) from error
        yield word, vector


def _binary_rows(path: Path, stream: io.BufferedReader, width: int) -> Iterator[Row]:
    number = 0
    while beginning := stream.peek(1)[:1]:
        if beginning == b"\n":
            stream.read(1)
            continue
        number += 1
        word = _until_space(stream)
        raw = stream.read(4 * width)
        if not word.endswith(b" ") or len(raw) != 4 * width:
            raise FileError(f"{path} ends, or is damaged, inside word number {number:,}", REMEDY)
        yield word[:-1], np.frombuffer(raw, dtype="<f4").astype(np.float32)


def _until_space(stream: io.BufferedReader) -> bytes:
    """The bytes up to and with the next space; without one where there is none in reach."""
    found = b""
    while len(found) < LONGEST_WORD:
        ahead = stream.peek(1)
        end = ahead.find(b" ") + 1
        found += stream.read(end or len(ahead))
        if end or not ahead:
            break
    return found


def _word(path: Path, raw: bytes, number: int) -> str:
    try:
        word = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: word number {number:,} is not UTF-8 ({error.reason})", REMEDY) from error
    if not word:
        raise FileError(f"{path}: word number {number:,} is empty", REMEDY)
    return word
