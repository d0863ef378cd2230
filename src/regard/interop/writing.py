"""A model of ours as a folder that `transformers` and the engines that read its files load."""

from pathlib import Path

from tokenizers.processors import TemplateProcessing

from regard.errors import InputError
from regard.files import write_json, write_text
from regard.interop.huggingface import fitting_family, write_model
from regard.models.transformer import Transformer
from regard.tasks.recipe import Recipe
from regard.text.tokenizer import Tokenizer, parse_engine

ROLES = ("pad", "bos", "eos", "unk", "mask")


def write_folder(folder: Path, module: Transformer, tokenizer: Tokenizer, recipe: Recipe) -> str:
    """Weights, config, tokenizer and manners; returns the name of the family it now is."""
    family = fitting_family(module)
    marks = _marks(tokenizer)
    ids: dict[str, int | None] = {f"{role}_token_id": marks[role] for role in ("pad", "bos", "eos") if role in marks}
    if module.config.architecture == "encoder-decoder":
        ids["decoder_start_token_id"] = marks.get("bos")
    write_model(folder, module, family, ids)
    write_text(folder / "tokenizer.json", _tokenizer_json(tokenizer, recipe))
    names = {f"{role}_token": tokenizer.token_text(token) for role, token in marks.items()}
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})
    if module.config.head == "tokens":
        write_json(folder / "generation_config.json", {**ids, **_manners(recipe)})
    return family.name


def _marks(tokenizer: Tokenizer) -> dict[str, int]:
    """The special ids there are, by what they are for."""
    found = {}
    for role in ROLES:
        try:
            found[role] = getattr(tokenizer, f"{role}_id")
        except (InputError, AttributeError, KeyError):
            continue
    return found


def _tokenizer_json(tokenizer: Tokenizer, recipe: Recipe) -> str:
    """The tokenizer; where our texts begin with a mark that we add, theirs adds it too."""
    text = tokenizer.to_json()
    if recipe.task.name != "language" or recipe.task.begin != "bos" or tokenizer.kind == "foreign":
        return text
    engine, _ = parse_engine(text)
    begin = tokenizer.token_text(tokenizer.bos_id)
    engine.post_processor = TemplateProcessing(f"{begin} $A", special_tokens=[(begin, tokenizer.bos_id)])
    return str(engine.to_str(pretty=True))


def _manners(recipe: Recipe) -> dict[str, object]:
    """The [decoding] table in their words."""
    table = recipe.decoding
    given: dict[str, object] = {"do_sample": table.strategy == "sample", "max_new_tokens": table.max_new_tokens}
    for ours, theirs in {
        "beams": "num_beams",
        "temperature": "temperature",
        "top_k": "top_k",
        "top_p": "top_p",
    }.items():
        if getattr(table, ours) is not None:
            given[theirs] = getattr(table, ours)
    if table.strategy == "beam":
        given |= {
            "num_beams": table.beams or 5,
            "length_penalty": 1.0 if table.length_penalty is None else table.length_penalty,
        }
    return given
