"""The page of a derivation: every merge, tie and word is on it, and nothing of the corpus is markup."""

from html.parser import HTMLParser

from regard.text.explain import WORDS, build_words, derive
from regard.text.word_bpe import marked_words
from regard.views.derivation import DerivationPage, derivation_html, save_derivation

FOUND = derive(marked_words("low lower newest wider"))
MERGES = [step.merge.pair for step in FOUND.steps]


class Reader(HTMLParser):
    """Tags that are open, and the text of each symbol."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.symbols: list[str] = []
        self.inside = False

    def handle_starttag(self, tag, attributes):
        self.open += [] if tag in ("meta", "link") else [tag]
        self.inside = tag == "bdi"
        if self.inside:
            self.symbols.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.symbols[-1] += data


def read(content: str) -> Reader:
    reader = Reader()
    reader.feed(content)
    reader.close()
    assert reader.open == []
    return reader


def test_every_merge_and_the_corpus_after_it_are_on_the_page():
    content = derivation_html(DerivationPage("corpus.txt", FOUND, (), WORDS))
    symbols = " ".join(read(content).symbols)
    for step in FOUND.steps:
        assert " ".join([*step.merge.pair, "".join(step.merge.pair)]) in symbols
        assert " ".join(symbol for word, _ in step.words for symbol in word) in symbols
    assert " ".join(FOUND.vocabulary) in symbols
    assert content.count("<li>") == 4
    assert content.count("tied with") == 3
    assert "no pair occurs twice" in content


def test_a_text_is_built_on_the_page():
    words = tuple(build_words(marked_words("slower"), MERGES))
    content = derivation_html(DerivationPage("corpus.txt", None, words, WORDS))
    assert read(content).symbols[-3:] == ["s", "low", "er_"]
    assert content.count(">merge ") == 4


def test_nothing_in_a_corpus_is_markup_or_fetched(tmp_path):
    nasty = "<script>x</script> {{style}} &amp; \x1b \u202e"
    found = derive(marked_words(f"{nasty} {nasty}"))
    path = tmp_path / "page.html"
    save_derivation(DerivationPage("<b>", found, tuple(build_words(marked_words(nasty), [])), WORDS), path)
    content = path.read_text(encoding="utf-8")
    read(content)
    assert "<script" not in content
    assert "\x1b" not in content
    assert "\u202e" not in content
    assert "http://" not in content.replace("http://www.w3.org/2000/svg", "")
