"""The notebook's widget in a real browser: its programs as one module, its questions answered by Python."""

import json

import pytest

pytest.importorskip("anywidget")

from regard.views.exploring.recorded import ShownRecording
from regard.views.exploring.widget import RecordingWidget

TEXT = "the cat sat on a mat"
PAGE = """
window.render = (opening) => {
  const heard = [];
  const model = {
    get: () => opening,
    on: (name, listener) => heard.push(listener),
    send: async (message) => {
      const reply = JSON.parse(await window.answer(JSON.stringify(message)));
      heard.forEach((one) => one(reply));
    },
  };
  widget.render({ model, el: document.body });
};
"""


@pytest.fixture
def widget(explored):
    seen = explored["gpt"].look(TEXT, values=True)
    return RecordingWidget(ShownRecording(seen, explored["gpt"].tokenizer), layer="decoder.1.self", values=True)


def answered(widget, message: str) -> str:
    """What Python sends back."""
    sent: list[dict] = []
    widget.send = sent.append
    widget._answer(widget, json.loads(message), [])
    return json.dumps(sent[0])


def test_the_widget_shows_exact_rows_in_the_pages_own_views(browser, widget, explored):
    tab = browser.new_page()
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("console", lambda message: problems.append(message.text))
    tab.expose_function("answer", lambda message: answered(widget, message))
    tab.goto("about:blank")
    program = widget._esm.replace("export default", "const widget =") + PAGE
    tab.add_script_tag(type="module", content=program)
    tab.wait_for_function("() => Boolean(window.render)")
    tab.evaluate("(opening) => window.render(opening)", widget.opening)
    tab.wait_for_selector(".partners .number")
    row, weights = 1, explored["gpt"].look(TEXT).weights("decoder.1.self", 0)
    assert float(tab.locator(".partners .number").first.inner_text()) == pytest.approx(
        float(weights[row].max()), abs=6e-5
    )
    assert tab.locator(".tabs button").all_inner_texts() == ["All heads", "One head", "Four steps"]
    tab.click("[data-view=steps]")
    tab.wait_for_selector(".vectors")
    tab.click("[data-view=overview]")
    tab.wait_for_selector(".thumb")
    assert tab.locator("form").count() == 0
    assert problems == []
    tab.close()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"what": "passwords", "asked": {}}, "another version"),
        ({"what": "rows", "asked": {"layer": "decoder.9.self", "head": 0, "rows": [0]}}, "was not seen"),
        ({"what": "rows", "asked": {"path": "/etc/passwd"}}, "another version"),
        ({"what": "read", "asked": {}}, "another version"),
    ],
)
def test_a_question_that_cannot_be_answered_gets_a_sentence(widget, asked, said):
    assert said in json.loads(answered(widget, json.dumps({"id": 1, **asked})))["error"]
