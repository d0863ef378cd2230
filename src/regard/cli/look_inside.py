"""What `regard look` shows of a model's inside: heads by what they do, what they do to the answer, and why."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from regard.cli.looking import Look
from regard.errors import ConfigError, InputError

if TYPE_CHECKING:
    from regard.api import Model
    from regard.inspection.decisions import Decisions
    from regard.inspection.what_if import Ablation


def show_heads(asked: Look, _: object) -> None:
    """Every head's measures: a table in the terminal, a scatter in the file."""
    from regard.views.figure import check_format, draw_to
    from regard.views.heads import draw_heads, heads_record, heads_text

    check_format(asked.to)
    if "snapshots" in asked.given:
        _show_history(asked)
        return
    loaded = asked.open()
    report = loaded.heads(asked.text or None)
    draw_to(asked.to, lambda: draw_heads(report))
    asked.tell(loaded, heads_record(report), heads_text(report), f"the {len(report.heads)} heads")


def _show_history(asked: Look) -> None:
    """The same at every step that the run kept."""
    from regard.api.snapshots import head_history
    from regard.views.figure import draw_to
    from regard.views.head_history import draw_head_history, head_history_record, head_history_text

    found = head_history(asked.model, asked.text or None, asked.device, asked.precision)
    draw_to(asked.to, lambda: draw_head_history(found))
    asked.tell(asked.open(), head_history_record(found), head_history_text(found), "the heads while they formed")


def show_without(asked: Look, changes: list[str]) -> None:
    """The answer with heads switched off and edges cut."""
    from regard.views.effects import draw_what_if, what_if_record, what_if_text
    from regard.views.figure import check_format, draw_to

    check_format(asked.to)
    ablation, renormalise = _ablation(asked), "no-renormalise" not in asked.given
    loaded = asked.open()
    found = loaded.what_if(
        asked.one,
        changes,
        target=asked.target,
        generate=asked.generate,
        max_new_tokens=asked.max_new_tokens,
        ablation=ablation,
        renormalise=renormalise,
    )
    _refuse_idle(asked, heads=None in found.cut, edges=any(one is not None for one in found.cut))
    draw_to(asked.to, lambda: draw_what_if(found))
    asked.tell(loaded, what_if_record(found), what_if_text(found), "the answer before and after")


def show_effects(asked: Look, _: object) -> None:
    """What the answer loses without each head, or without each edge of a row."""
    from regard.views.effects import draw_head_effects, head_effects_record, head_effects_text
    from regard.views.figure import check_format, draw_to

    if asked.row is not None:
        _show_edges(asked)
        return
    for name in ("layer", "head"):
        if name in asked.given:
            raise InputError(f"--{name} has no effect on the effects of all heads", "add --row for the edges of a row")
    _refuse_idle(asked, heads=True, edges=False)
    check_format(asked.to)
    ablation, loaded = _ablation(asked), asked.open()
    found = loaded.head_effects(
        asked.one,
        target=asked.target,
        generate=asked.generate,
        max_new_tokens=asked.max_new_tokens,
        ablation=ablation,
    )
    draw_to(asked.to, lambda: draw_head_effects(found))
    asked.tell(loaded, head_effects_record(found), head_effects_text(found), "what the answer loses without each head")


def _show_edges(asked: Look) -> None:
    from regard.inspection.what_if import edge_effects
    from regard.views.effects import draw_edge_effects, edge_effects_record, edge_effects_text
    from regard.views.figure import check_format, draw_to

    if asked.layer is None or asked.row is None:
        raise InputError("--row says no layer", "add --layer, such as decoder.1.cross")
    _refuse_idle(asked, heads=False, edges=True)
    check_format(asked.to)
    loaded = asked.open()
    decided = _decided(asked, loaded)
    rows, keys = _names(loaded, decided, asked.layer)
    renormalise = "no-renormalise" not in asked.given
    found = edge_effects(loaded.module, decided, asked.layer, asked.row, asked.head, renormalise)
    row = rows[found.query]
    draw_to(asked.to, lambda: draw_edge_effects(found, keys, row))
    told = edge_effects_text(found, keys, row)
    asked.tell(loaded, {**edge_effects_record(found), "keys": keys}, told, f"the edges of row {asked.row}")


def show_why(asked: Look, place: str) -> None:
    """One score, split by where its parts came from."""
    from regard.inspection.intervention import EdgeKnockout, change_of
    from regard.inspection.score_parts import score_parts
    from regard.views.figure import check_format, draw_to
    from regard.views.score_parts import draw_score_parts, score_parts_record, score_parts_text

    edge = change_of(place)
    if not isinstance(edge, EdgeKnockout) or edge.head is None:
        raise InputError(f"{place!r} names no score", "write LAYER:HEAD:QUERY:KEY, such as encoder.1.self:3:5:2")
    check_format(asked.to)
    loaded = asked.open()
    decided = _decided(asked, loaded)
    found = score_parts(loaded.module, decided.inputs, edge.layer, edge.head, edge.query, edge.key)
    rows, keys = _names(loaded, decided, edge.layer)
    query, key = rows[found.query], keys[found.key]
    draw_to(asked.to, lambda: draw_score_parts(found, query, key))
    record = {**score_parts_record(found), "query_token": query, "key_token": key}
    asked.tell(loaded, record, score_parts_text(found, query, key), "where the score came from")


def show_lens(asked: Look, _: object) -> None:
    """What each layer would decide."""
    from regard.inspection.lens import logit_lens
    from regard.views.figure import check_format, draw_to
    from regard.views.lens import draw_lens, lens_record, lens_text

    check_format(asked.to)
    loaded = asked.open()
    found = logit_lens(loaded.module, _decided(asked, loaded))
    draw_to(asked.to, lambda: draw_lens(found))
    asked.tell(loaded, lens_record(found), lens_text(found), "the logit lens")


def show_patch(asked: Look, other: str) -> None:
    """Which vectors of a text bring its answer back in another."""
    from regard.views.figure import check_format, draw_to
    from regard.views.lens import draw_patching, patching_record, patching_text

    check_format(asked.to)
    loaded = asked.open()
    found = loaded.patching(asked.one, other, target=asked.target)
    names = [loaded.tokenizer.pieces(stack.tokens) for stack in found.stacks]
    draw_to(asked.to, lambda: draw_patching(found, names))
    told = patching_text(found, names)
    asked.tell(loaded, patching_record(found, names), told, "what each vector brings back")


def show_flow(asked: Look, _: object) -> None:
    """Raw weights, rollout and gradient × attention of one layer."""
    from regard.inspection.flow import attention_flow
    from regard.views.figure import check_format, draw_to
    from regard.views.lens import draw_flow, flow_record, flow_text

    if asked.layer is None:
        raise InputError("--flow says no layer", "add --layer, such as encoder.1.self")
    check_format(asked.to)
    loaded = asked.open()
    decided = _decided(asked, loaded)
    found = attention_flow(loaded.module, decided, asked.layer)
    rows, keys = _names(loaded, decided, asked.layer)
    draw_to(asked.to, lambda: draw_flow(found, rows, keys))
    asked.tell(loaded, flow_record(found, rows, keys), flow_text(found, rows, keys), f"{asked.layer} in three ways")


def show_corpus(asked: Look, path: Path) -> None:
    """What heads do on a file of text."""
    from regard.views.corpus_page import corpus_record, corpus_text, save_corpus_page
    from regard.views.html import check_html_name

    if asked.text:
        raise InputError("a text and a file are given", "leave one of them out")
    if asked.head is not None and asked.layer is None:
        raise InputError(f"--head {asked.head} says no layer", "add --layer, such as encoder.1.self")
    check_html_name(asked.to)
    loaded = asked.open()
    found = loaded.on_corpus(path, layer=asked.layer, head=asked.head)
    save_corpus_page(found, asked.to, f"{asked.model.name} on {path.name}")
    asked.tell(loaded, corpus_record(found), corpus_text(found), f"{len(found.heads)} heads on {path.name}")


def _decided(asked: Look, model: "Model") -> "Decisions":
    """What the model decides about the text."""
    return model.decisions(asked.one, target=asked.target, generate=asked.generate, max_new_tokens=asked.max_new_tokens)


def _names(model: "Model", decided: "Decisions", layer: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens of a layer's rows and keys."""
    source = decided.inputs.source
    tokens = tuple(model.tokenizer.pieces(decided.inputs.tokens.rows()[0]))
    read = tokens if source is None else tuple(model.tokenizer.pieces(source.rows()[0]))
    if layer.startswith("encoder."):
        return read, read
    return tokens, read if layer.endswith(".cross") else tokens


def _ablation(asked: Look) -> "Ablation":
    given = asked.given.get("ablation", "zero")
    if given not in ("zero", "mean"):
        raise ConfigError(f"ablation {given!r} is unknown", "use zero or mean")
    return cast("Ablation", given)


def _refuse_idle(asked: Look, *, heads: bool, edges: bool) -> None:
    """No option of heads without a head, nor of edges without an edge."""
    for name, what, there in (("ablation", "a head", heads), ("no-renormalise", "an edge", edges)):
        if name in asked.given and not there:
            raise InputError(f"--{name} has no effect where {what} is not taken out", "leave it out")


INSIDE: dict[str, Any] = {
    "heads": show_heads,
    "without": show_without,
    "effects": show_effects,
    "why": show_why,
    "lens": show_lens,
    "patch": show_patch,
    "flow": show_flow,
    "corpus": show_corpus,
}
"""What shows each."""
