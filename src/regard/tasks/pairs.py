"""Tasks whose examples are a source with its target: built-in corpora, and files of pairs."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from regard.data.corpus import Corpus, Pair, Split, corpus
from regard.data.sources import PAIR, PairList, read_pairs
from regard.errors import ConfigError, InputError
from regard.tasks.data_table import DataTable
from regard.tasks.files import Paths, open_files, reading_of
from regard.tasks.task import EVERY_SPLIT


def open_corpus(table: DataTable, splits: Collection[Split] = EVERY_SPLIT, task: str = "translation") -> Corpus:
    """The corpus a recipe's [data] describes; of files, only those of the splits asked for are read."""
    if table.corpus is not None:
        return corpus(table.corpus, table.options)
    if table.format in ("text", "whole"):
        raise ConfigError(
            f"[data] format {table.format!r} has documents and task {task!r} needs pairs",
            "use parallel, tsv, csv or jsonl, or auto",
        )
    return open_pairs(table, splits, PAIR)


def open_pairs(table: DataTable, splits: Collection[Split], parts: tuple[str, str]) -> PairList:
    """The pairs of the files that a recipe's [data] names."""

    def read(paths: Paths, format: str, columns: Mapping[str, str]) -> list[Pair]:
        return read_pairs(paths, format, columns, parts)

    found = open_files(table, splits, read)
    return PairList(found.train, found.valid, found.test)


def read_pair_files(paths: Sequence[Path], data: DataTable | None, parts: tuple[str, str] = PAIR) -> list[Pair]:
    """Pairs of one file or of two, read as those of `data` are."""
    if len(paths) > 2:
        raise InputError(f"{len(paths)} files are given", "give one file of pairs, or SOURCE TARGET")
    if len(paths) == 2:
        return read_pairs((paths[0], paths[1]))
    format, columns = reading_of(data)
    return read_pairs(paths[0], "auto" if format == "parallel" else format, columns, parts)
