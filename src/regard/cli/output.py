"""What verbs print: one line of JSON whatever the texts in it hold, and errors in the command line's own words."""

import json
import re
from typing import Any

_OBEYED = re.compile("[\x7f-\x9f\u2028\u2029]")  # JSON escapes those below U+0020 itself


def to_json(record: Any) -> str:
    r"""One line of JSON: letters as they are; what a terminal obeys or a reader of lines breaks at is escaped.

    >>> to_json({"é": "\x9b31m"})
    '{"é": "\\u009b31m"}'
    """
    plain = json.dumps(record, ensure_ascii=False)
    return _OBEYED.sub(lambda found: f"\\u{ord(found.group()):04x}", plain)


_ARGUMENTS = re.compile(r'`(?:(out)|(resume)=True|data=\[([^]]*)\]|changes=\{"([^"]+)": ([^}]*)\})`(, (?=`changes))?')


_SENTENCES = {
    'as `question + "\\t" + passage`': "or use --context PASSAGE",
    "register one of your own first, by `regard.register_mechanism(Shape)`": "load one of your own by --plugin FILE.py",
    "`regard.register_mechanism(Shape)`": "--plugin FILE.py",
    "`pieces=True`": "--pieces",
}


def as_options(sentence: str) -> str:
    """A sentence that names arguments of `regard.train`, with the options of the command line in their place.

    >>> as_options('go on with `resume=True`, `changes={"training.steps": 9}`, or choose another `out`')
    'go on with --resume --set training.steps=9, or choose another --out'
    """

    def option(found: re.Match[str]) -> str:
        out, resume, data, key, value, more = found.groups()
        if data is not None:
            return f"--data {data.replace(chr(34), '').replace(',', '')}"
        said = f"--{out or resume}" if key is None else f"--set {key}={value}"
        return f"{said} " if more else said

    for python, command in _SENTENCES.items():
        sentence = sentence.replace(python, command)
    return _ARGUMENTS.sub(option, sentence)
