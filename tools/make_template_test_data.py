#!/usr/bin/env python3
"""Writes tests/data/template_cases.json: small templates with what Python's jinja2 makes of them.

The environment is the one chat templates are written for: an immutable sandbox with trim_blocks, lstrip_blocks, loop
controls, a `generation` tag, a plain `tojson`, `raise_exception` and `strftime_now`. Needs jinja2 3.1 and nothing else.

    python3 tools/make_template_test_data.py tests/data/template_cases.json
"""

import datetime
import json
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CLOCK = datetime.datetime(2026, 11, 15, 0, 0, 0)


class Generation(Extension):
    """{% generation %} … {% endgeneration %}, which only matters for training: its text stands as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_same")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: CLOCK.strftime(form)
    return env


VARIABLES = {
    "name": "Ada",
    "text": "  Hello, Wörld! 你好 🎉\n second line\t",
    "html": "<a href='x'>\"&\"</a>",
    "empty": "",
    "number": 42,
    "negative": -7,
    "ratio": 2.5,
    "yes": True,
    "no": False,
    "nothing": None,
    "list": [3, 1, 2],
    "words": ["pear", "Apple", "fig", "apple"],
    "nested": [[1, 2], [3, 4]],
    "map": {"b": 1, "a": [1, 2.0, None, True, "x\"y"], "c": {"k": "v"}},
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"x": 1}}}]},
        {"role": "user", "content": "Bye"},
    ],
    "odd_keys": {"items": 5, "get": 6, "plain": 7},
    "long": "the quick brown fox jumps over the lazy dog",
}

# One line a case. Grouped by subject; the subject is part of the test's output.
CASES = {
    "printing": [
        "{{ none }}|{{ true }}|{{ 1 }}|{{ 1.0 }}|{{ 'x' }}|{{ missing }}|",
        "{{ [1, 'a', 1.5, none, true, \"it's\", 'q\"'] }}",
        "{{ (1,) }}{{ (1, 2) }}{{ () }}{{ [] }}{{ {} }}",
        "{{ {'a': 1, 2: [3], none: 'x\\n\\ty', 'ü': '\\x00\\x7f\\u200b'} }}",
        "{{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1/3 }} {{ 100.0 }} {{ 1e300 * 1e10 }} {{ 123456789.125 }}",
        "{{ -0.0 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{ 0.1 + 0.2 }} {{ 2.5e10 }}",
        "{{ map }}", "{{ list }}{{ nested }}", "{{ 1, 2 }}", "{{ range(3) }}{{ range(1, 10, 3) }}",
        "{{ map.items() }}{{ map.keys() }}{{ map.values() }}", "{{ 'a' 'b' \"c\" }}",
        "{{ '\\u00e9\\x41\\101\\q\\\\ \\'' }}", "{{ \"tab\\tnew\\nline\" }}", "{{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1_0.5e1 }}",
        "{{ namespace(a=1).a }}", "{{ ['\\U0001F600', '\\\\'] }}", "{{ text }}", "{{ [text] }}",
    ],
    "white space": [
        "a\n{% if true %}\nb\n{% endif %}\nc\n", "a\n   {% if true %}\n  b\n   {% endif %}\nc", "a {%- if true -%} b {%- endif -%} c",
        "a\n  {%+ if true %}b{% endif +%}\nc", "{{ 'x' }}\n{{ 'y' }}\n", "{{- 'x' -}}   \n  {{ 'y' }}", "  {{ 'x' }}  ",
        "a\n  {# comment #}\nb", "a {#- comment -#} b", "a{# x #}\n\nb", "{% raw %}{{ x }}{% if %}{% endraw %}!",
        "a\n  {%- raw -%}  {{ x }}  {%- endraw -%}  b", "x\n  {% raw %}\n y\n  {% endraw %}\nz", "line\r\nline\rline\n\n", "\n\n{{ 1 }}\n\n",
        "{% set x = 1 %}\n\n{{ x }}", "\t{% set x = 1 %}{{ x }}", "a{% set x = 1 %}\nb", "{{ '{{' }}{{ '%}' }}", "{% if true %}  {% endif %}|",
        "{%if yes%}a{%endif%}", "{{{'a':{'b':1}}['a']['b']}}", "{{ 1 -}}\n\n 2", "  {%- set x = 3 %}\n  {{ x }}", "{##}x{#-#}  y{#--#} z",
        "a\u00a0{%- if yes %}b{% endif %}", "{{ '\n' }}x", "{% for i in list %}\n  {{ i }}\n{% endfor %}\n",
    ],
    "if": [
        "{% if no %}a{% elif yes %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}",
        "{% if missing %}a{% else %}b{% endif %}", "{% if empty or list %}a{% endif %}", "{{ 'a' if yes else 'b' }}{{ 'a' if no else 'b' }}",
        "{{ 'a' if no }}|", "{{ 1 if no else 2 if no else 3 }}", "{{ not yes }}{{ not not list }}", "{{ yes and 'x' }}{{ no or 'y' }}{{ empty or none }}",
        "{{ nothing is none and name }}", "{% if list %}{% if yes %}in{% endif %}{% endif %}", "{{ ('a' if yes else 'b') ~ 'c' }}",
    ],
    "for": [
        "{% for i in list %}{{ i }},{% endfor %}", "{% for i in [] %}x{% else %}none{% endfor %}", "{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}",
        "{% for k in map %}{{ k }}{% endfor %}", "{% for c in 'aé你' %}{{ c }}.{% endfor %}", "{% for i in list if i > 1 %}{{ loop.index }}:{{ i }} {% endfor %}",
        "{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}",
        "{% for i in list %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}", "{% for i in list %}{{ loop.cycle('a', 'b') }}{% endfor %}",
        "{% for i in [1, 1, 2, 2, 1] %}{% if loop.changed(i) %}{{ i }}{% endif %}{% endfor %}", "{% for i in list %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}",
        "{% for i in list %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
        "{% set x = 0 %}{% for i in list %}{% set x = i %}{% endfor %}{{ x }}", "{% for i in missing %}x{% else %}e{% endfor %}", "{% for i in 5 %}x{% endfor %}",
        "{% for i in nothing %}x{% endfor %}", "{% for m in messages %}{{ loop.index }}{% for m in messages %}{{ loop.index }}{% endfor %}{% endfor %}",
        "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for i in range(3) %}{{ i }}{% endfor %}{{ i }}", "{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}",
        "{% set x = 1 %}{% for i in list %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}",
        "{% for m in messages if m.role == 'user' %}{{ m.content }}{{ loop.last }}{% endfor %}", "{% for i in list %}{{ loop.depth }}{{ loop.missing }}{% endfor %}",
        "{% for i in list recursive %}x{% endfor %}",
    ],
    "set": [
        "{% set a = 1 %}{% set b, c = 2, 3 %}{{ a }}{{ b }}{{ c }}", "{% set x %}block {{ name }}{% endset %}[{{ x }}]", "{% set x | upper | trim %}  block {{ name }} {% endset %}[{{ x }}]",
        "{% set ns = namespace(n=0, m='x') %}{% for i in list %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}{{ ns.m }}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|",
        "{% set d = {} %}{% set d.x = 1 %}", "{% set x = (1, 2) %}{{ x[1] }}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% if yes %}{% set z = 5 %}{% endif %}{{ z }}",
        "{% set ns = namespace(x=1) %}{% set ns.x, y = 2, 3 %}{{ ns.x }}{{ y }}", "{% set true = 1 %}", "{% set a = b = 1 %}",
        "{% set messages = messages[1:] %}{{ messages | length }}{{ messages[0].role }}",
    ],
    "macros": [
        "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=3) }}|{{ m(a=5, b=6) }}", "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}",
        "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
        "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}inside {{ name }}{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}-{{ b }}{% endcall %}",
        "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}",
        "{% macro m() %}{% set x = 9 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(3) }}", "{% macro m() %}  x  {% endmacro %}[{{ m() | trim }}]",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[7]) }}{{ m(**{'a': 8}) }}", "{% macro m() %}a{% endmacro %}{{ m() ~ 'b' }}{{ m() + 'c' }}{{ m()|length }}", "{{ m() }}", "{% macro m() %}x{% endmacro %}{{ m.name }}",
        "{% for i in list %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(x, y) %}{{ x }}{{ y is defined }}{% endmacro %}{{ m(1) }}",
        "{% macro outer() %}{% macro inner(a) %}({{ a }}){% endmacro %}{{ inner(1) }}{{ inner(2) }}{% endmacro %}{{ outer() }}", "{% macro m(a, b=1, c) %}{% endmacro %}",
    ],
    "blocks": [
        "{% filter upper %}abc {{ name }}{% endfilter %}", "{% filter replace('a', 'b') | trim %} aaa {% endfilter %}!", "{% generation %}text {{ name }}{% endgeneration %}",
        "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q }}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% from 'x' import y %}", "{% unknown %}", "{% if x %}", "{% endif %}",
        "{{ 1", "{% for x in %}{% endfor %}", "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ 'abc }}", "{# open", "{% raw %} open", "{{ a b }}", "{{ [1, 2 }}", "{{ @ }}", "{% break %}", "{{ x is defined is none }}",
    ],
    "operators": [
        "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
        "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ +5 }} {{ - 5 }} {{ 1 - -1 }}", "{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2,) }}",
        "{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] ~ missing }}", "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ '1' == 1 }} {{ true == 1 }} {{ none == none }} {{ 3 > 2 >= 2 != 1 }}",
        "{{ 'b' in 'abc' }} {{ 1 in list }} {{ 'a' in map }} {{ 'x' not in 'abc' }} {{ '' in 'a' }} {{ 1.0 in [1] }}", "{{ 1 in missing }} {{ missing == missing }} {{ missing != 1 }}", "{{ missing + 1 }}", "{{ missing.x }}",
        "{{ nothing.x }}|{{ number.x }}|{{ list.x }}|{{ map.zzz }}|", "{{ map.zzz.y }}", "{{ missing['x'] }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ 'a' in 5 }}", "{{ 5 in 'a5' }}",
        "{{ 'abc' < 'abd' }} {{ [1, 2] < [1, 3] }} {{ (1, 2) == (1, 2) }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}", "{{ 'x' if 1 in [1] and not 2 in [1] else 'y' }}", "{{ -list[0] }} {{ - 3 | abs }}",
        "{{ 10 % 4 * 2 }} {{ 2 + 3 ~ 4 }} {{ 1 ~ 2 + 3 }}", "{{ missing() }}", "{{ name() }}", "{{ true + true }} {{ true and 1 }} {{ 5 and 0 or 'z' }}", "{{ 'é' < 'z' }} {{ 'Z' < 'a' }}", "{{ missing < 1 }}", "{{ -missing }}", "{{ -name }}",
    ],
    "subscripts": [
        "{{ list[0] }}{{ list[-1] }}{{ list[9] }}|{{ name[0] }}{{ name[-1] }}{{ name[7] }}|", "{{ list[1:] }}{{ list[:-1] }}{{ list[::-1] }}{{ list[::2] }}{{ list[-2:] }}{{ list[5:] }}{{ list[2:0:-1] }}",
        "{{ name[::-1] }}{{ name[1:] }}{{ name[:1] }}{{ text[2:9] }}{{ text[-4:] }}{{ '你好🎉'[1:] }}{{ '你好🎉'[::-1] }}", "{{ map['b'] }}{{ map['a'][0] }}{{ map.c.k }}{{ map['zzz'] }}|", "{{ messages[-1]['content'] }}{{ messages[0].role }}",
        "{{ odd_keys.items is callable }}{{ odd_keys['items'] }}{{ odd_keys.plain }}{{ odd_keys['get'] }}", "{{ list.0 }}{{ nested.1.0 }}", "{{ list[true] }}", "{{ list['0'] }}|", "{{ list[1.5] }}|", "{{ map[1] }}|", "{{ list[none:2] }}", "{{ list[::0] }}", "{{ (1, 2, 3)[1:] }}",
        "{{ name[100:] }}|{{ name[-100:2] }}|{{ name[5:1] }}|", "{{ list['a':] }}", "{{ map[:1] }}", "{{ range(10)[3] }}{{ range(10)[2:4] | list }}",
    ],
    "sandbox": [
        "{{ ''.__class__ }}|", "{{ ''['__class__'] }}|", "{{ ''.__class__.__mro__ }}", "{{ list.__init__ }}|", "{{ ''|attr('__class__') }}|", "{{ namespace.__init__ }}|", "{{ map.__class__ }}|", "{{ messages.append(1) }}",
        "{{ '{0.__class__}'.format('x') }}", "{{ range(1000000) }}",
    ],
    "string methods": [
        "{{ 'a,b,,c'.split(',') }}{{ 'a b  c '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'abc'.split('x') }}{{ ''.split() }}{{ ''.split(',') }}{{ ' a b '.split(none, 1) }}", "{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a b c '.rsplit(none, 1) }}{{ 'a b c'.rsplit() }}{{ 'aaa'.rsplit('aa', 5) }}",
        "[{{ text.strip() }}][{{ text.lstrip() }}][{{ text.rstrip() }}][{{ 'xxaxx'.strip('x') }}][{{ 'abcba'.strip('ab') }}][{{ 'éaé'.strip('é') }}][{{ 'xa'.lstrip('x') }}]", "{{ 'Hello World'.upper() }}{{ 'Hello World'.lower() }}{{ 'hello wORLD'.title() }}{{ 'hELLO world'.capitalize() }}{{ \"they're bill's\".title() }}",
        "{{ 'straße é'.upper() }}{{ 'ÄÖÜ Σ'.lower() }}", "{{ 'abc'.startswith('ab') }}{{ 'abc'.startswith(('x', 'a')) }}{{ 'abc'.endswith('bc') }}{{ 'abc'.endswith(('x',)) }}{{ 'abc'.startswith('b', 1) }}{{ 'abc'.startswith('') }}",
        "{{ 'aXbXc'.replace('X', '--') }}{{ 'aaa'.replace('a', 'b', 2) }}{{ 'abc'.replace('', '-') }}{{ 'aaa'.replace('aa', 'b') }}{{ 'é'.replace('é', 'e') }}", "{{ 'hello'.find('l') }}{{ 'hello'.find('z') }}{{ 'hello'.rfind('l') }}{{ 'héllo'.index('l') }}{{ 'hello'.find('l', 3) }}{{ 'hello'.find('o', 0, 3) }}", "{{ 'abc'.index('z') }}",
        "{{ 'banana'.count('an') }}{{ 'aaaa'.count('aa') }}{{ 'abc'.count('') }}", "{{ ', '.join(['a', 'b']) }}{{ ''.join([]) }}{{ '-'.join('abc') }}", "{{ ','.join([1]) }}", "{{ 'a\\nb\\r\\nc\\n'.splitlines() }}{{ 'a\\n\\nb'.splitlines(true) }}",
        "{{ '12'.isdigit() }}{{ '1a'.isdigit() }}{{ ''.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' \\t'.isspace() }}{{ 'AB'.isupper() }}{{ 'ab1'.islower() }}", "{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.txt'.removesuffix('.txt') }}{{ 'x'.removeprefix('y') }}",
        "[{{ 'a'.ljust(3) }}][{{ 'a'.rjust(3, '.') }}][{{ 'a'.center(4, '*') }}][{{ 'ab'.center(5) }}][{{ '7'.zfill(3) }}][{{ '-7'.zfill(4) }}]", "{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'abc'.partition('=') }}{{ 'abc'.rpartition('=') }}",
        "{{ '{} {1}'.format(1, 2) }}", "{{ '{} {} {}'.format(1, 'b', none) }}{{ '{1}{0}'.format('a', 'b') }}{{ '{x}-{y}'.format(x=1, y='z') }}{{ '{{}}'.format() }}", "{{ '{:>5}|{:<5}|{:^5}|{:*^7}|{:05d}|{:.2f}|{:,}|{:x}|{:+d}|{:e}|{:%}'.format('a', 'b', 'c', 'd', 42, 3.14159, 1234567, 255, 5, 12345.678, 0.25) }}", "{{ '{0[a]} {0.b}'.format({'a': 1, 'b': 2}) }}", "{{ '{!r} {!s}'.format('x', 'y') }}",
        "{{ 'abc'.nosuch() }}", "{{ 'a'.upper(1) }}", "{{ 'a'.split('') }}", "{{ name.upper is callable }}",
    ],
    "containers": [
        "{{ map.get('b') }}{{ map.get('zz') }}{{ map.get('zz', 5) }}{{ map.get(1) }}", "{{ map.items() | list }}", "{{ map.keys() | list }}{{ map.values() | list | length }}", "{{ {'a': 1}.copy() }}{{ list.index(2) }}{{ list.count(1) }}", "{{ list.index(9) }}", "{{ dict(a=1, b='x') }}{{ dict([('a', 1)]) }}{{ dict({'a': 1}, b=2) }}",
        "{% for k, v in {'x': 1, 'y': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "{% set j = joiner(', ') %}{{ j() }}a{{ j() }}b{{ j() }}c", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "{{ {1: 'a', true: 'b', 1.0: 'c'} }}", "{{ {[1]: 2} }}", "{{ {(1, 2): 3}[(1, 2)] }}", "{{ map.nosuch() }}", "{{ map.get() }}",
    ],
    "percent": [
        "{{ '%s and %s' % (1, 'b') }}{{ '%s' % 'x' }}{{ '%d%%' % 5 }}{{ '%5d|%-5d|%05d|%+d' % (42, 42, 42, 42) }}", "{{ '%.2f %5.1f %e %g %G' % (3.14159, 2.25, 12345.678, 0.00001, 1e20) }}", "{{ '%x %X %o %#x' % (255, 255, 8, 255) }}{{ '%r' % 'x' }}{{ '%c%c' % (65, 'b') }}", "{{ '%(a)s-%(b)d' % {'a': 'x', 'b': 2} }}", "{{ '%5s|%-5s|%.2s' % ('ab', 'ab', 'abcdef') }}", "{{ '%*d' % (5, 42) }}", "{{ '%s' % [1, 2] }}{{ '%s' % none }}{{ '%d' % 3.9 }}{{ '%s' % true }}",
        "{{ '%s %s' % 'x' }}", "{{ '%d' % 'x' }}", "{{ 'x' % 1 }}", "{{ '%z' % 1 }}", "{{ '%s-%s' | format(1, 2) }}{{ '%(a)s' | format(a=3) }}", "{{ '%.3d' % 7 }}{{ '% d' % 7 }}",
    ],
    "tojson": [
        "{{ map | tojson }}", "{{ map | tojson(indent=2) }}", "{{ map | tojson(indent=0) }}", "{{ map | tojson(sort_keys=true) }}", "{{ map | tojson(separators=(',', ':')) }}", "{{ html | tojson }}", "{{ text | tojson }}{{ text | tojson(ensure_ascii=true) }}", "{{ '\\x00\\x1f\\x7f\\b\\f\\u2028/' | tojson }}", "{{ none | tojson }}{{ true | tojson }}{{ 1.0 | tojson }}{{ 1e100 | tojson }}{{ [] | tojson }}{{ {} | tojson }}{{ (1, 2) | tojson }}", "{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}", "{{ [] | tojson(indent=2) }}{{ {'a': []} | tojson(indent=2) }}{{ [[1], {}] | tojson(indent=4) }}", "{{ missing | tojson }}", "{{ namespace(a=1) | tojson }}", "{{ map | tojson(indent='--') }}", "{{ map | tojson(true, 1) }}", "{{ '\U0001F389' | tojson(ensure_ascii=true) }}", "{{ messages[2].tool_calls[0].function.arguments | tojson }}", "{{ (1e400) | tojson }}",
    ],
    "filters": [
        "{{ list | length }}{{ name | length }}{{ map | count }}{{ missing | length }}{{ '你好' | length }}", "{{ number | length }}", "[{{ text | trim }}][{{ 'xax' | trim('x') }}][{{ none | trim }}]", "{{ 5 | string + 'a' }}{{ list | string }}", "{{ missing | default('d') }}{{ empty | default('d') }}{{ empty | default('d', true) }}{{ none | d('x') }}{{ none | d('x', boolean=true) }}{{ missing | d }}|",
        "{{ list | join }}{{ list | join(', ') }}{{ messages | join('-', attribute='role') }}{{ 'abc' | join('.') }}{{ [none, true] | join('/') }}", "{{ map | items | list }}{{ missing | items | list }}", "{{ list | items | list }}", "{{ 'ABC' | lower }}{{ 'abc' | upper }}{{ none | upper }}{{ 1.5 | upper }}", "{{ 'hello wORLD foo-bar (baz) <x [y {z' | title }}{{ 'hELLO' | capitalize }}", "{{ html | e }}{{ html | escape }}{{ html | safe }}", "{{ map | dictsort }}", "{{ {'b': 1, 'A': 3, 'a': 2} | dictsort }}{{ {'b': 1, 'A': 3} | dictsort(true) }}{{ {'b': 1, 'a': 3} | dictsort(by='value') }}{{ {'b': 1, 'a': 3} | dictsort(reverse=true) }}",
        "{{ 'abc' | list }}{{ map | list }}{{ range(3) | list }}", "{{ 'a-b-c' | replace('-', '+') }}{{ 'aaa' | replace('a', 'b', 2) }}{{ 123 | replace(2, 'x') }}", "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}", "{{ messages | rejectattr('role', 'eq', 'user') | map(attribute='role') | join(',') }}", "{{ messages | selectattr('tool_calls') | list | length }}{{ messages | selectattr('tool_calls', 'defined') | list | length }}", "{{ messages | map(attribute='tool_calls', default='none') | list }}", "{{ list | select('odd') | list }}{{ list | reject('odd') | list }}{{ [0, 1, '', 'a'] | select | list }}{{ list | select('gt', 1) | list }}{{ list | select('in', [1, 2]) | list }}",
        "{{ words | map('upper') | list }}{{ words | map('replace', 'p', 'q') | join(' ') }}{{ nested | map('first') | list }}{{ nested | map('join', '-') | list }}", "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, blank=true) }}|{{ 'a\\nb\\n' | indent('> ') }}|", "{{ '42' | int }}{{ '42.7' | int }}{{ 'x' | int }}{{ 'x' | int(7) }}{{ 3.9 | int }}{{ '0x1f' | int(base=16) }}{{ none | int }}{{ true | int }}{{ ' 7 ' | int }}{{ '-5' | int }}{{ '1_000' | int }}", "{{ '1.5' | float }}{{ 'x' | float }}{{ 3 | float }}{{ 'x' | float(2.5) }}{{ '1e3' | float }}{{ 'inf' | float }}",
        "{{ list | min }}{{ list | max }}{{ words | min }}{{ words | max }}{{ [] | min }}|{{ messages | map(attribute='content') | max }}", "{{ list | sum }}{{ [1.5, 2] | sum }}{{ [] | sum }}{{ [{'a': 1}, {'a': 2}] | sum(attribute='a') }}{{ list | sum(start=10) }}", "{{ words | unique | list }}{{ [1, 2, 1] | unique | list }}{{ words | unique(true) | list }}", "{{ list | sort }}{{ list | sort(reverse=true) }}{{ words | sort }}{{ words | sort(case_sensitive=true) }}{{ messages | sort(attribute='role') | map(attribute='role') | list }}", "{{ messages | sort(attribute='role,content') | map(attribute='content') | list }}", "{{ list | reverse | list }}{{ 'abc' | reverse }}", "{{ list | first }}{{ list | last }}{{ [] | first }}|{{ 'abc' | first }}{{ 'abc' | last }}",
        "{{ -5 | abs }}{{ (-5) | abs }}{{ (-2.5) | abs }}{{ (-3) | abs }}", "{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.675 | round(2) }}{{ 42.55 | round(1) }}{{ 42.51 | round(1, 'floor') }}{{ 42.51 | round(1, 'ceil') }}{{ 5 | round }}{{ 1234 | round(-2) }}{{ 1234.5 | round(-2) }}{{ -0.4 | round }}", "{{ [1, 2, 3, 4, 5] | batch(2) | list }}{{ [1, 2, 3] | batch(2, 'x') | list }}", "{{ [1, 2, 3, 4, 5] | slice(2) | list }}{{ [1, 2, 3, 4, 5] | slice(3, 'x') | list }}", "{{ messages | groupby('role') | map('first') | list }}{% for role, group in messages | groupby('role') %}{{ role }}:{{ group | length }} {% endfor %}", "{{ 'a b, c-d' | wordcount }}{{ long | wordcount }}", "{{ 'a b&c/d?é' | urlencode }}{{ {'a': 'x y', 'b': 1} | urlencode }}", "[{{ 'ab' | center(7) }}]",
        "{{ map | attr('items') is callable }}{{ map | attr('b') }}|", "{{ 1 | nosuch }}", "{{ list | join(', ', 'x', 'y') }}", "{{ list | map('nosuch') | list }}", "{{ list | select('nosuch') | list }}", "{{ missing | int }}", "{{ missing | upper }}|{{ missing | trim }}|{{ missing | list }}|{{ missing | join }}|{{ missing | first }}|{{ missing | sort }}|{{ missing | map('upper') | list }}", "{{ missing.x | default('d') }}", "{{ map.zz.yy | default('d') }}", "{{ none | list }}", "{{ 'x' | abs }}", "{{ words | map(attribute='0') | list }}", "{{ messages | map(attribute='tool_calls.0.id') | list }}", "{{ list | first | string | length }}", "{{ 'a' | upper ~ 'b' | upper }}", "{{ ['b', 'a'] | sort | first }}", "{{ nested | sum(start=[]) }}",
    ],
    "tests": [
        "{{ name is defined }}{{ missing is defined }}{{ missing is undefined }}{{ map.zz is defined }}{{ map.b is defined }}{{ nothing is defined }}", "{{ name is string }}{{ 1 is string }}{{ none is none }}{{ nothing is not none }}{{ map is mapping }}{{ list is mapping }}", "{{ list is iterable }}{{ name is iterable }}{{ 1 is iterable }}{{ missing is iterable }}{{ map is iterable }}{{ none is iterable }}", "{{ list is sequence }}{{ name is sequence }}{{ map is sequence }}{{ 1 is sequence }}{{ (list | map('string')) is sequence }}{{ range(2) is sequence }}",
        "{{ true is boolean }}{{ 1 is boolean }}{{ 1 is number }}{{ 1.5 is number }}{{ true is number }}{{ '1' is number }}", "{{ 1 is integer }}{{ true is integer }}{{ 1.0 is integer }}{{ 1.0 is float }}{{ 1 is float }}", "{{ true is true }}{{ 1 is true }}{{ false is false }}{{ 0 is false }}", "{{ 1 is eq 1 }}{{ 1 is eq(2) }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 1 is le 1 }}{{ 1 is gt 0 }}{{ 1 is ge 2 }}{{ 1 is equalto 1 }}{{ 2 is greaterthan 1 }}{{ 2 is lessthan 1 }}", "{{ 1 is in [1] }}{{ 'a' is in 'abc' }}{{ 1 is not in [2] }}", "{{ 2 is even }}{{ 2 is odd }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}", "{{ none is sameas none }}{{ 1 is sameas true }}{{ list is sameas list }}", "{{ range is callable }}{{ name is callable }}{{ 'a' is lower }}{{ 'A' is upper }}{{ 'aB' is lower }}", "{{ 'upper' is filter }}{{ 'x' is filter }}{{ 'odd' is test }}", "{{ 1 is nosuch }}", "{{ 'x' is even }}", "{{ name is defined and name is string or no }}", "{{ not name is defined }}", "{% if x is not defined or x is none %}a{% endif %}", "{{ 'a' if name is defined else 'b' }}", "{{ [name is string, name is none] }}",
    ],
    "globals": [
        "{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%Y-%m-%d %H:%M:%S %j %A %a %B %p %I %y %%') }}|{{ strftime_now('%-d %-m') }}", "{{ raise_exception('my words: <|x|>') }}", "{{ raise_exception() }}", "{{ range(0) | list }}{{ range(3, 1) | list }}", "{{ range(1, 2, 0) }}", "{{ range('a') }}", "{{ range(100001) }}", "{{ dict(1) }}", "{{ namespace(1) }}", "{% if no %}{{ raise_exception('x') }}{% endif %}ok", "{% set range = 5 %}{{ range }}",
    ],
    "conversations": [
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% endif %}{% for m in loop_messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}{{ system }}",
        "{%- for message in messages %}\n    {%- if message.role == 'assistant' and message.tool_calls is defined and message.tool_calls is not none %}\n        {%- for call in message.tool_calls %}\n            {{- call.function | tojson }}\n        {%- endfor %}\n    {%- else %}\n        {{- message.role ~ ': ' ~ message.content }}\n    {%- endif %}\n{%- endfor %}",
        "{% for m in messages | selectattr('role', 'in', ['user', 'assistant']) %}{{ loop.index }}/{{ loop.length }} {{ m.content }}\n{% endfor %}", "{%- set ns = namespace(last='') -%}{%- for m in messages[::-1] -%}{%- if ns.last == '' and m.role == 'user' -%}{%- set ns.last = m.content -%}{%- endif -%}{%- endfor -%}{{ ns.last }}",
        "{% set content = '<think>a</think>b' %}{{ content.split('</think>')[-1].lstrip('\\n') }}{{ content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] }}",
    ],
}


def main():
    env = environment()
    out = []
    for subject, templates in CASES.items():
        for template in templates:
            case = {"subject": subject, "template": template}
            try:
                case["text"] = env.from_string(template).render(**json.loads(json.dumps(VARIABLES)))
            except Exception as error:  # noqa: BLE001 - whatever the original raises, ours must fail too
                case["error"] = f"{type(error).__name__}: {error}"
            out.append(case)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"variables": VARIABLES, "cases": out}, file, ensure_ascii=False, indent=1)
        file.write("\n")
    print(f"{len(out)} cases, {sum('error' in case for case in out)} of them errors")


if __name__ == "__main__":
    main()
