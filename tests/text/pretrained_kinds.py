"""A tokenizer of each kind that other libraries write, trained on a little text and put into a folder as they do."""

import json
from collections.abc import Callable
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Engine

TEXTS = [
    "The roses by the bank are red, and the river is wide.",
    "She doesn't know; they don't either. What's that?",
    "low lower lowest newer wider   three blanks\nand a line, 42 or 3.14",
    "naïve café, straße, ÅNGSTRÖM",
] * 3
ASKED = [
    *TEXTS[:4],
    "",
    " ",
    "unseen words: zebra, quixotic",
    "日本語 and 😀 emoji",
    "\ttab\r\n",
    "e\u0301 and é",
    "trailing blank ",
    "the<the>",
]


def wordpiece() -> tuple[Engine, dict[str, str]]:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    engine = Engine(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=True)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    engine.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=131, special_tokens=specials))
    engine.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", engine.token_to_id("[CLS]")), ("[SEP]", engine.token_to_id("[SEP]"))],
    )
    engine.enable_padding(length=128)
    engine.enable_truncation(128)
    return engine, dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), specials, strict=True))


def byte_level() -> tuple[Engine, dict[str, str]]:
    """GPT-2's."""
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    end = "<|endoftext|>"
    engine.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=307, special_tokens=[end], initial_alphabet=alphabet)
    )
    return engine, {"bos_token": end, "eos_token": end, "unk_token": end}


def roberta() -> tuple[Engine, dict[str, str]]:
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    engine.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=307, special_tokens=names, initial_alphabet=alphabet)
    )
    engine.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    engine.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    roles = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    return engine, roles | {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}


def unigram() -> tuple[Engine, dict[str, str]]:
    """T5's; its special tokens are entries of the model."""
    engine = Engine(models.Unigram())
    engine.normalizer = normalizers.NFKC()
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.decoder = decoders.Metaspace()
    names = ["<pad>", "</s>", "<unk>", "<extra_id_1>", "<extra_id_0>"]
    engine.train_from_iterator(
        TEXTS, trainers.UnigramTrainer(vocab_size=113, special_tokens=names, unk_token="<unk>", show_progress=False)
    )
    engine.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", engine.token_to_id("</s>"))]
    )
    return engine, {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def byte_fallback() -> tuple[Engine, dict[str, str]]:
    """LLaMA's."""
    names = ["<unk>", "<s>", "</s>"]
    learnt = Engine(models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.Metaspace()
    learnt.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=89, special_tokens=[]))
    merges = [tuple(pair) for pair in json.loads(learnt.to_str())["model"]["merges"]]
    pieces = [*names, *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += sorted(learnt.get_vocab(), key=learnt.get_vocab().__getitem__)
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    engine = Engine(model)
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    engine.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    engine.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s>:0 $A:0 <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return engine, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def split_bytes() -> tuple[Engine, dict[str, str]]:
    """LLaMA 3's: another pattern, special tokens behind the vocabulary, some of them with no role."""
    engine = Engine(models.BPE(ignore_merges=True))
    pattern = pre_tokenizers.Split(Regex(r"\p{N}{1,3}| ?\p{L}+|[^\p{L}\p{N}]+"), "isolated")
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [pattern, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    engine.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    engine.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=311, initial_alphabet=alphabet))
    engine.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|spare|>"])
    engine.add_tokens(["river is"])
    begin = engine.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(
        single="<|begin_of_text|>:0 $A:0",
        pair="<|begin_of_text|>:0 $A:0 <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", begin)],
    )
    engine.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return engine, {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}


KINDS: dict[str, Callable[[], tuple[Engine, dict[str, str]]]] = {
    "wordpiece": wordpiece,
    "byte-level": byte_level,
    "roberta": roberta,
    "unigram": unigram,
    "byte-fallback": byte_fallback,
    "split-bytes": split_bytes,
}


def write(kind: str, folder: Path) -> Path:
    """The folder as transformers writes it."""
    from transformers import PreTrainedTokenizerFast

    engine, roles = KINDS[kind]()
    PreTrainedTokenizerFast(tokenizer_object=engine, **roles).save_pretrained(folder)
    return folder
