"""A model that is named, `owner/name`, and not there: fetched from Hugging Face's hub, or from HF_ENDPOINT.

Its config first, so that a family that is not known costs nothing; then safetensors and the files of its tokenizer, and
nothing else: no pickles, no programs. What was fetched once is kept where huggingface_hub keeps it, and is used where
the hub cannot be asked. The library is imported here alone, and only when a model is fetched.
"""

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from regard.errors import FileError, RegardError
from regard.files import read_json
from regard.interop.huggingface import family_of
from regard.interop.tensors import INDEX, PICKLES
from regard.models.checkpoint import CONFIG, WEIGHTS, is_own

SMALL = (
    CONFIG,
    "generation_config.json",
    "recipe.toml",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
"""What is read beside the weights."""
_ID = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,94}[A-Za-z0-9_])?", re.ASCII)
_LOCAL = "give the folder of a trained model, such as runs/demo, or a model of the hub as owner/name"


def located(given: Path, *, weights: bool = True) -> Path:
    """The path itself if something is there or it names no model of the hub; else the folder it was fetched into."""
    if os.path.lexists(given) or given.is_absolute() or len(given.parts) != 2:
        return given
    owner, name = given.parts
    if owner in ("runs", "..", "~") or os.path.lexists(owner):  # a folder of one's own, whose model is missing
        return given
    if not all(_ID.fullmatch(part) and "--" not in part and ".." not in part for part in (owner, name)):
        said = "is no folder, and no model of the hub: its parts are letters, digits and single -, _ and . between"
        raise FileError(f"{str(given)[:120]!r} {said}", _LOCAL)
    return _fetched(f"{owner}/{name}", weights=weights)


Fetch = Callable[[str, str], Path]
"""From a file's name and a revision to where it now is."""


def _fetched(model: str, *, weights: bool) -> Path:
    """The folder of a model of the hub, with all that is read of it in it."""
    import huggingface_hub

    endpoint, cache = os.environ.get("HF_ENDPOINT") or None, os.environ.get("HF_HUB_CACHE") or None

    def fetch(name: str, revision: str, *, kept: bool = False) -> Path:
        return Path(
            huggingface_hub.hf_hub_download(
                model, name, revision=revision, endpoint=endpoint, cache_dir=cache, local_files_only=kept
            )
        )

    try:
        found = huggingface_hub.HfApi(endpoint=endpoint).model_info(model, timeout=20)  # which is not asked again
        names = [one.rfilename for one in found.siblings or ()]
        if CONFIG not in names:
            raise FileError(f"{model} has no {CONFIG} on the hub", "name a model that transformers loads")
        folder = fetch(CONFIG, "main").parent  # named as its commit
        if not is_own(read_json(folder / CONFIG, "name another model")):
            family_of(folder)
        if weights:
            for name in (*(one for one in SMALL if one in names), *_weights(model, names, folder, fetch)):
                fetch(name, folder.name)
        return folder
    except RegardError:
        raise
    except _failures() as error:
        return _kept(model, partial(fetch, kept=True), error)


def _failures() -> tuple[type[Exception], ...]:
    """What the library raises where the hub does not answer, or with something else than asked for."""
    from huggingface_hub import errors

    return OSError, ValueError, getattr(errors, "HTTPError", OSError)


def _weights(model: str, names: Sequence[str], folder: Path, fetch: Fetch) -> list[str]:
    """The files with the numbers: the one there is, or those that the index names."""
    if WEIGHTS in names:
        return [WEIGHTS]
    if INDEX not in names:
        pickled = next((one for one in PICKLES if one in names), None)
        problem = f"{model} has its weights as {pickled}, a pickle," if pickled else f"{model} has no {WEIGHTS}"
        raise FileError(f"{problem} on the hub", "name a model with safetensors, which run no program when opened")
    fetch(INDEX, folder.name)
    shards = read_json(folder / INDEX, "name another model").get("weight_map")
    listed = {*shards.values()} if isinstance(shards, dict) else set()
    missing = sorted(str(one)[:80] for one in listed if one not in names or not str(one).endswith(".safetensors"))
    if missing or not listed:
        raise FileError(f"{model} lacks {missing[0] if missing else 'the shards'} that its index names", "name another")
    return sorted(listed)


def _kept(model: str, fetch: Fetch, error: Exception) -> Path:
    """What was fetched before, where the hub does not answer; else why there is nothing."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):
        raise FileError(
            f"{model} is on the hub for those who agreed to its terms", "log in with hf auth login"
        ) from error
    if isinstance(error, RepositoryNotFoundError):
        raise FileError(f"there is no folder {model} here and no model {model} on the hub", _LOCAL) from error
    try:
        folder = fetch(CONFIG, "main").parent
        if (folder / WEIGHTS).is_file() or (folder / INDEX).is_file():
            return folder
    except _failures():
        pass
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
    raise FileError(
        f"there is no folder {model} here, and the hub cannot be asked for it ({reason})",
        "give the folder of a trained model, or try again with a network",
    ) from error
