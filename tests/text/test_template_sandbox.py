"""A hostile template is refused in one sentence, soon, and without the memory it asks for."""

import time

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from regard.errors import InputError
from regard.text.template_sandbox import LONGEST_TEMPLATE, SECONDS, SandboxedTemplate

VALUES = {"messages": [{"role": "user", "content": "Hi"}], "number": 3}
DOUBLING = "{%% set ns = namespace(x='aaaaaaaaaa') %%}{%% for i in range(99) %%}{%% set ns.x = %s %%}{%% endfor %%}"
HOSTILE = {
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "class of a message": "{{ messages.__class__ }}",
    "class by name": "{{ messages['__cla' + 'ss__'] }}",
    "class by map": "{{ messages | map(attribute='__class__') | list }}",
    "attr": "{{ number | attr('__class__') }}",
    "globals": "{{ raise_exception.__globals__ }}",
    "builtin of namespace": "{{ namespace.__init__.__globals__ }}",
    "method's self": "{{ number.bit_length.__self__ }}",
    "the template": "{{ self.__init__ }}",
    "change": "{{ messages.append(1) }}",
    "import": "{% import 'os' as os %}{{ os }}",
    "from import": "{% from 'os' import system %}",
    "include": "{% include '/etc/passwd' %}",
    "extends": "{% extends 'base' %}",
    "range": "{{ range(10 ** 12) | list }}",
    "large range": "{% for i in range(999999999) %}x{% endfor %}",
    "nested loops": "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    "recursive loop": "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "endless macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "huge output": "{% for i in range(9999) %}" + "y" * 9999 + "{% endfor %}",
    "huge block": "{% set x %}" + "z" * 9999 + "{% endset %}{% for i in range(9999) %}{{ x }}{% endfor %}",
    "repeated text": "{{ 'x' * 1000000000 }}",
    "repeated list": "{{ [1] * 1000000000 }}",
    "power": "{{ 9 ** 9 ** 9 ** 9 }}",
    "doubling by +": DOUBLING % "ns.x + ns.x",
    "doubling by ~": DOUBLING % "ns.x ~ ns.x",
    "doubling by replace": DOUBLING % "ns.x.replace('a', 'aaaa')",
    "doubling by the filter": DOUBLING % "ns.x | replace('a', 'aaaa')",
    "doubling by join": DOUBLING % "ns.x.join([ns.x, ns.x])",
    "format": "{{ '{:1000000000}'.format(3) }}",
    "format by name": "{{ 'x{:1000000000}'['form' ~ 'at'](3) }}",
    "percent": "{{ '%1000000000d' % 3 }}",
    "center": "{{ 'x' | center(1000000000) }}",
    "ljust": "{{ 'x'.ljust(1000000000) }}",
    "lipsum": "{{ lipsum(1000000) }}",
    "indent": "{{ messages | tojson(indent=1000000000) }}",
    "spread": "{{ range(*[1, 1000000000]) }}",
    "parentheses": "{{ " + "(" * 9999 + "1" + ")" * 9999 + " }}",
    "too long": "x" * (LONGEST_TEMPLATE + 1),
    "call block": "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}x{% endcall %}",
    "no template": "{% for %}",
    "division": "{{ 1 / 0 }}",
    "nothing": "{{ nothing.at.all }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_are_refused(name):
    begun = time.process_time()
    with pytest.raises(InputError, match=r"^the chat template ") as refusal:
        SandboxedTemplate(HOSTILE[name]).render(VALUES, 2)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400
    assert time.process_time() - begun < SECONDS  # a bound that is promised, and no measurement


def test_harmless_templates_do_as_they_say():
    source = """{%- set ns = namespace(found=false) -%}
    {%- for m in messages if m.role == 'user' -%}
        {%- set ns.found = true -%}
        {{ loop.index ~ '/' ~ loop.length }} {{ m['content'].strip().replace('H', 'h') }}{{ ',' if not loop.last }}
        {%- generation -%} said {%- endgeneration -%}
        {%- if loop.first %}{% continue %}{% endif -%}
    {%- endfor -%}
    {{ ' '.join(['a', 'b']) + ('c' if ns.found else 'd') }} {{ {'é': [1, "<"]} | tojson }} {{ 7 % 4 * 2 }}"""
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    plain.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    unmarked = source.replace("{%- generation -%}", "{#- -#}").replace("{%- endgeneration -%}", "{#- -#}")
    wanted = plain.from_string(unmarked).render(VALUES).replace("\\u003c", "<")
    assert SandboxedTemplate(source).render(VALUES, 2) == wanted
    assert wanted.startswith("1/1 hi")


def test_long_conversations_are_no_hostile_ones():
    source = "{% for m in messages %}{{ '<' + m.content | trim + '>' }}{% endfor %}"
    said = [{"role": "user", "content": "x" * 99_999}] * 99
    assert len(SandboxedTemplate(source).render({"messages": said}, 99 * 99_999)) == 99 * 100_001
