#!/usr/bin/env python3
"""Writes tests/golden/jinja_cases.json: small templates and what the real Jinja2 makes of them.

    pip install jinja2==3.1.6
    python tools/generate/jinja_cases.py

The environment is the one `transformers` renders chat templates in: the immutable sandbox with trim_blocks, lstrip_blocks
and loop controls, a {% generation %} tag, raise_exception, strftime_now (fixed to 2026-01-31) and json.dumps as tojson.
"""

import datetime
import json
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 1, 31, 0, 0, 0)

DATA = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Hi <b>you</b>\n"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "function": {"name": "f", "arguments": {"x": 1, "y": [1.5, None, True]}}}]},
        {"role": "tool", "content": "42"},
    ],
    "words": ["beta", "Alpha", "gamma", "alpha"],
    "numbers": [3, 1, 2, 10, 7],
    "mixed": [1, "1", 1.0, True, None, [], {}],
    "person": {"name": "Ada", "age": 36, "items": "shadow", "langs": ["en", "fr"], "nested": {"a": {"b": 1}}},
    "people": [{"name": "Bo", "age": 30}, {"name": "al", "age": 25, "admin": True}, {"name": "Cy", "age": 30}],
    "text": "The quick brown fox",
    "accents": "stra\u00dfe \u00c9t\u00e9 \u5317\u4eac \U0001f600 o\u0301",
    "lines": "one\n  two\r\nthree\n\nfive\n",
    "empty": "",
    "nothing": None,
    "yes": True,
    "no": False,
    "zero": 0,
    "big": 12345678901234567890,
    "pi": 3.14159,
    "floats": [1.0, 0.1, 1e16, 1e15, 1e-5, 0.0001, 123456789.125, -0.0, 1e300, 5e-324, 2.5, 100.0, 1e22],
    "quotes": ["it's", 'say "x"', "both ' and \"", "back\\slash", "tab\tnew\nline", "\x00\x1b\x7f\u00a0\u200b\u00e9"],
}

# Each line is one template; every block below is a theme. What raises is recorded as an error kind.
ONE_LINERS = r"""
{{ 1 + 2 * 3 - 4 / 2 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}
{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 1 / 3 }}
{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 5 % 0 }}
{{ 10 - 2 - 3 }} {{ 100 / 10 / 2 }} {{ 2 * 3 % 4 }}
{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'ab' * 0 }} {{ 'ab' * -1 }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ 'a' - 'b' }}
{{ [1] + [2, 3] }} {{ [0] * 3 }} {{ (1,) + (2,) }}
{{ [1] + (2,) }}
{{ None + 1 }}
{{ 1 ~ 'a' ~ None ~ true ~ 1.0 ~ [1] }}
{{ 1 ~ 2 + 3 }}
{{ 1 + 2 ~ 3 }}
{{ true + true }} {{ True }} {{ none }} {{ None }} {{ false }}
{{ not true }} {{ not none }} {{ not '' }} {{ not not 1 }}
{{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 'x' }} {{ '' or none }} {{ 1 or 1/0 }}
{{ true and not false or false }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }} {{ 3 > 2 >= 2 != 1 }}
{{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ [1, 2] < [1, 3] }} {{ (1,) < (1, 0) }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ [1] < (1,) }}
{{ 1 == '1' }} {{ none == none }} {{ [1, [2]] == [1, [2]] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}
{{ 1 in [1, 2] }} {{ 3 not in [1, 2] }} {{ 'ell' in 'hello' }} {{ 'a' in {'a': 1} }} {{ 1 in (1,) }}
{{ 1 in 'abc' }}
{{ 'a' in none }}
{{ 'a' in 5 }}
{{ 'a' in missing }}
{{ missing in 'abc' }}
{{ 'yes' if true else 'no' }} {{ 'yes' if false else 'no' }} {{ 'yes' if false }}
{{ 1 if false else 2 if false else 3 }}
{{ ('a' if no).x }}
{{ -5 }} {{ +5 }} {{ --5 }} {{ - 5 + 3 }}
{{ -'a' }}
{{ 0x1f }} {{ 0o17 }} {{ 0b101 }} {{ 1_000 }} {{ 1e3 }} {{ 1.5e-3 }} {{ 1_0.2_5 }}
{{ 'esc\n\t\\\'\"\x41\u00e9\101' }}|{{ "d'q" }}|{{ 'raw \d \w' }}
{{ 'con' 'cat' "enated" }}
{{ 1, 2 }} {{ (1, 2) }} {{ () }} {{ (1,) }} {{ [1, 'a', none, true, 1.5, [2], {'k': 'v'}] }}
{{ {'a': 1, 'b': [1, 2], 3: none, none: 1, 1.5: 'x', (1, 2): 't'} }}
{{ {'a': 1, 'a': 2} }} {{ {1: 'a', 1.0: 'b', true: 'c'} }}
{{ {[1]: 2} }}
{{ {} }} {{ [] }} {{ '' }}
{{ {'a': {'b': [1, {'c': 2}]}}['a']['b'][1].c }}
{{ words[0] }} {{ words[-1] }} {{ words[1:3] }} {{ words[::-1] }} {{ words[::2] }} {{ words[-2:] }} {{ words[:-1] }}
{{ words[9] }}|{{ words['x'] }}|{{ words[9] is defined }}
{{ words[9].x }}
{{ words.0 }} {{ words.1[0] }} {{ [[1, 2], [3, 4]].1.0 }}
{{ text[4] }} {{ text[-3:] }} {{ text[::-1] }} {{ text[4:9] }} {{ text[100:] }}|{{ text[::3] }}|{{ text[10:2:-2] }}
{{ accents[0:6] }} {{ accents[7] }} {{ accents[-1] }} {{ accents | length }} {{ accents[::-1] }}
{{ numbers[10:] }} {{ numbers[-100:2] }} {{ numbers[3:1] }} {{ numbers[3:1:-1] }} {{ numbers[:2:-1] }} {{ numbers[-1:-4:-1] }}
{{ numbers[::0] }}
{{ nothing[1:] }}
{{ missing[1:] }}
{{ 5[0] }}|{{ 5 .x }}|{{ none.x }}|{{ none['x'] }}
{{ none.x.y }}
{{ missing }}|{{ missing is defined }}|{{ missing is undefined }}
{{ missing.x }}
{{ missing['x'] }}
{{ missing() }}
{{ missing + 1 }}
{{ 'a' + missing }}
{{ 'a' ~ missing }}
{{ missing == missing }} {{ missing == none }} {{ missing != 1 }}
{{ missing < 1 }}
{{ 1 < missing }}
{{ -missing }}
{{ person.name }} {{ person['age'] }} {{ person.missing }}|{{ person['missing'] }}|{{ person.nested.a.b }}
{{ person.missing.x }}
{{ person['items'] }} {{ person.get('items') }} {{ person.get('zz') }} {{ person.get('zz', 5) }} {{ person.get('name', 5) }}
{{ person.items() | list }}
{{ person.keys() | list }} {{ person.values() | list | length }} {{ person.keys() }} {{ {'a': 1}.items() }} {{ {'a': 1}.values() }}
{{ person.update({'a': 1}) }}
{{ words.append('x') }}
{{ words.append }}|{{ words.append is defined }}
{{ person.pop('name') }}
{{ words.index('gamma') }} {{ words.count('beta') }} {{ (1, 2, 1).count(1) }}
{{ words.index('zz') }}
{{ text() }}
{{ text.upper is callable }}
{{ 'abc'.nope }}|{{ 'abc'.nope is defined }}
{{ 'abc'.nope() }}
{{ yes }} {{ no }} {{ nothing }} {{ big }} {{ pi }} {{ zero }}
{{ floats }}
{{ floats | join(' ') }}
{{ floats | tojson }}
{{ quotes }}
{{ quotes | tojson }}
{{ quotes | tojson(ensure_ascii=true) }}
{{ accents | tojson }} {{ accents | tojson(ensure_ascii=True) }}
{{ person | tojson }}
{{ person | tojson(indent=2) }}
{{ person | tojson(indent='--', sort_keys=true) }}
{{ person | tojson(separators=(',', ':')) }}
{{ {'e': {}, 'l': [], 't': (1, 2), 1: 'i', none: 'n', true: 'b', 1.5: 'f'} | tojson(indent=4) }}
{{ {'a': missing} | tojson }}
{{ missing | tojson }}
{{ {(1, 2): 1} | tojson }}
{{ words | map('upper') | tojson }}
{{ words | map('upper') | list | tojson }}
{{ mixed }} {{ mixed | tojson }}
{{ big | tojson }} {{ 1e16 | tojson }} {{ -0.0 | tojson }}
{{ text | upper }} {{ text | lower }} {{ text | title }} {{ text | capitalize }} {{ "it's a mixed-case (word) [x] {y} <z>" | title }}
{{ text.upper() }} {{ text.lower() }} {{ text.title() }} {{ text.capitalize() }} {{ "it's o'neill" .title() }} {{ text.swapcase() }}
{{ accents | upper }} {{ accents | lower }} {{ accents.title() }} {{ accents | capitalize }}
{{ messages[1].content | trim }}|{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba' | trim('ab') }}
{{ '\u3000\u00a0x\u2003\x1f' | trim }}|
{{ 'a,b,,c'.split(',') }} {{ 'a b  c '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ '  a b  c '.split(none, 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }}
{{ 'a'.split('') }}
{{ 'a b'.split(maxsplit=0) }} {{ 'a-b'.split(sep='-') }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ lines | length }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, 2) }} {{ 'abc'.startswith('') }}
{{ 'abc'.startswith(1) }}
{{ 'abc'.startswith(['a']) }}
{{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'hello'.find('z') }} {{ 'hello'.find('l', 3) }} {{ 'hello'.count('l') }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }} {{ 'hello'.index('e') }}
{{ 'hello'.index('z') }}
{{ 'a.b.c'.replace('.', '-') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '.') }} {{ 'a.b' | replace('.', '!') }} {{ 'aaa' | replace('a', 'b', 1) }} {{ 5 | replace(5, 6) }}
{{ ', '.join(['a', 'b']) }} {{ '-'.join('abc') }} {{ ''.join([]) }}
{{ ','.join([1, 2]) }}
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'abc'.removeprefix('z') }}
{{ 'ab'.ljust(5, '.') }}|{{ 'ab'.rjust(5) }}|{{ 'ab'.center(5, '*') }}|{{ 'abc'.center(6, '*') }}|{{ '7'.zfill(3) }}|{{ '-7'.zfill(4) }}|{{ 'ab' | center(6) }}|
{{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ '12'.isdigit() }} {{ ' '.isspace() }} {{ ''.isspace() }} {{ 'AB'.isupper() }} {{ 'aB'.islower() }} {{ 'a1'.islower() }} {{ '\u5317'.isalpha() }} {{ '12'.isnumeric() }} {{ '1.2'.isdecimal() }}
{{ '{} {} {{}}'.format(1, 'a') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x:>5}|{y:<5}|{z:^5}|{w:05.1f}'.format(x=1, y='a', z='b', w=2.25) }} {{ '{:,}'.format(1234567) }} {{ '{!r}'.format('a') }} {{ '{:x} {:#X} {:b} {:e} {:.3g} {:%} {:+d}'.format(255, 255, 5, 12345.678, 0.00012345, 0.5, 3) }}
{{ '{0.name} {0[age]}'.format(person) }} {{ '{a[0]}'.format(a=words) }}
{{ '{}'.format() }}
{{ '{x}'.format(1) }}
{{ '%s is %d years, %.2f%% %5s|%-5s|%05d|%x|%r' % ('Ada', 36, 12.345, 'a', 'b', 42, 255, 'q') }}
{{ '%s' % 'x' }} {{ '%(name)s' % person }} {{ '%s' % [1, 2] }} {{ '%+d % d' % (5, 5) }} {{ '%e %g %G' % (12345.678, 0.00001, 1e20) }}
{{ '%s %s' % ('a',) }}
{{ '%s' % ('a', 'b') }}
{{ '%d' % 'x' }}
{{ 'x' % 1 }}
{{ '%s-%s' | format('a', 1) }} {{ '%(a)s' | format(a=1) }}
{{ words | join }} {{ words | join(', ') }} {{ numbers | join('-') }} {{ people | join('/', attribute='name') }} {{ 'abc' | join('.') }} {{ nothing is none }}
{{ none | join(',') }}
{{ missing | join(',') }}|{{ missing | list }}|{{ missing | length }}|{{ missing | upper }}|{{ missing | first }}|{{ missing | trim }}
{{ words | length }} {{ text | length }} {{ person | length }} {{ words | count }} {{ (1, 2) | length }} {{ range(5) | length }}
{{ none | length }}
{{ 5 | length }}
{{ words | map('upper') | length }}
{{ words | first }} {{ words | last }} {{ 'abc' | first }} {{ 'abc' | last }} {{ [] | first }}|{{ [] | last }}|{{ person | first }} {{ {'a': 1, 'b': 2} | last }}
{{ ([] | first).x }}
{{ words | sort }} {{ words | sort(reverse=true) }} {{ words | sort(case_sensitive=true) }} {{ numbers | sort }} {{ people | sort(attribute='age') | map(attribute='name') | join(',') }} {{ people | sort(attribute='age,name') | map(attribute='name') | join(',') }} {{ people | sort(true, attribute='age') | map(attribute='name') | join(',') }}
{{ [1, 'a'] | sort }}
{{ words | unique | list }} {{ words | unique(true) | list }} {{ [1, 1.0, true, 2] | unique | list }} {{ people | unique(attribute='age') | map(attribute='name') | list }}
{{ words | reverse | list }} {{ 'abc' | reverse }} {{ numbers | min }} {{ numbers | max }} {{ words | min }} {{ words | max(case_sensitive=true) }} {{ people | max(attribute='age') }} {{ [] | max }}|
{{ numbers | sum }} {{ people | sum(attribute='age') }} {{ numbers | sum(start=100) }} {{ [[1], [2]] | sum(start=[]) }}
{{ people | map(attribute='name') | list }} {{ people | map(attribute='admin', default='-') | list }} {{ words | map('length') | list }} {{ words | map('replace', 'a', 'A') | list }} {{ people | map(attribute='name.0') | list }}
{{ none | map('upper') | list }} {{ numbers | map('string') | join }} {{ [[1, 2], [3]] | map('sum') | list }}
{{ numbers | select('odd') | list }} {{ numbers | reject('odd') | list }} {{ numbers | select('gt', 2) | list }} {{ mixed | select | list }} {{ mixed | reject | list }} {{ numbers | select('in', [1, 2]) | list }}
{{ people | selectattr('admin') | map(attribute='name') | list }} {{ people | rejectattr('admin') | map(attribute='name') | list }} {{ people | selectattr('age', 'equalto', 30) | list | length }} {{ people | selectattr('admin', 'defined') | map(attribute='name') | list }} {{ messages | selectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | list }}
{{ messages | selectattr('role', '==', 'user') | first }}
{{ 'yes' if [] | select else 'no' }} {{ 'yes' if [] | select | list else 'no' }}
{{ numbers | select('nope') | list }}
{{ numbers | nope }}
{{ numbers is nope }}
{{ person | dictsort }} {{ {'b': 1, 'A': 2, 'c': 0} | dictsort }} {{ {'b': 1, 'A': 2, 'c': 0} | dictsort(true) }} {{ {'b': 1, 'A': 2, 'c': 0} | dictsort(by='value') }} {{ {'b': 1, 'A': 2} | dictsort(reverse=true) }}
{{ {'a': 1} | items | list }} {{ missing | items | list }}
{{ 5 | items | list }}
{{ 'abc' | list }} {{ person | list }} {{ range(3) | list }} {{ (1, 2) | list }} {{ words | map('upper') | list }}
{{ 5 | list }}
{{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(-1) }} {{ '3.9' | int }} {{ 3.9 | int }} {{ -3.9 | int }} {{ true | int }} {{ none | int }} {{ '0x1f' | int(base=16) }} {{ ' 7 ' | int }} {{ '1_000' | int }} {{ [] | int(5) }} {{ 'ff' | int(0, 16) }}
{{ '1.5' | float }} {{ 'x' | float }} {{ 'x' | float(2.5) }} {{ 3 | float }} {{ '1e3' | float }} {{ 'inf' | float }} {{ none | float }} {{ '0x10' | float }}
{{ missing | int }}
{{ 5 | string }} {{ none | string }} {{ [1] | string }} {{ 1.0 | string ~ 'x' }}
{{ -5 | abs }} {{ (-5) | abs }} {{ -2.5 | abs }}
{{ 'a' | abs }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 42.55 | round(1, 'floor') }} {{ 42.55 | round(1, 'ceil') }} {{ 42 | round }} {{ 42.7 | round | int }} {{ 1234.5 | round(-2) }} {{ 1.005 | round(2) }} {{ 0.5 | round }} {{ 1.5 | round(0, 'floor') }}
{{ missing | default('d') }} {{ '' | default('d') }}|{{ '' | default('d', true) }} {{ none | default('d') }} {{ none | d('d', boolean=true) }} {{ missing | default }}|{{ person.zz | default(person.name) }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2) }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb\n' | indent('> ') }}|{{ '' | indent }}|
{{ '<a href="x">\'&' | escape }} {{ '<' | e }} {{ '<b>' | safe }}
{{ text | truncate(9) }} {{ text | truncate(9, true) }} {{ text | truncate(9, false, '!', 0) }} {{ text | truncate(100) }} {{ text | wordcount }}
{{ numbers | batch(2) | list }} {{ numbers | batch(2, 0) | list }}
{{ person | attr('name') }}|{{ 'x' | attr('upper') is callable }}
{{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ '1' is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ true is boolean }} {{ 1 is boolean }} {{ 'a' is string }} {{ none is string }}
{{ [] is iterable }} {{ 'a' is iterable }} {{ 5 is iterable }} {{ {} is iterable }} {{ none is iterable }} {{ missing is iterable }} {{ [] is sequence }} {{ 'a' is sequence }} {{ {} is sequence }} {{ 5 is sequence }} {{ missing is sequence }} {{ range(2) is sequence }} {{ {}.keys() is sequence }} {{ [] | map('upper') is sequence }} {{ [] | map('upper') is iterable }}
{{ {} is mapping }} {{ [] is mapping }} {{ none is none }} {{ missing is none }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ none is not none }} {{ person.name is defined }} {{ person.zz is not defined }}
{{ 4 is even }} {{ 4 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 5 is eq 5 }} {{ 5 is ne(6) }} {{ 5 is gt 4 }} {{ 5 is le(5) }} {{ 5 is lessthan 6 }} {{ 'a' is in 'abc' }} {{ 1 is in [1] }} {{ none is sameas none }} {{ words is sameas words }} {{ range is callable }} {{ 'x' is callable }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ 'zz' is filter }}
{{ 'a' is even }}
{{ 1 is defined and 2 is defined }}
{{ 1 is number is defined }}
{% if not x is defined %}n{% endif %}{{ x is not defined and y is not defined }}
{{ range(5) | list }} {{ range(2, 5) | list }} {{ range(10, 0, -3) | list }} {{ range(0) | list }} {{ range(3) }} {{ range(1, 9, 2) }} {{ range(5)[1] }} {{ range(5)[-1] }} {{ 3 in range(5) }}
{{ range(1, 2, 0) }}
{{ range(200000) | list }}
{{ range('a') }}
{{ dict(a=1, b='x') }} {{ dict([('a', 1), ('b', 2)]) }} {{ dict({'a': 1}, b=2) }}
{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('%A %B %j %H:%M:%S %p %y') }} {{ strftime_now('') }}|{{ strftime_now('%-d') }}
{{ raise_exception('custom ' ~ 5) }}
{{ namespace(a=1).a }} {{ namespace({'b': 2}).b }} {{ namespace().zz is defined }}
{{ joiner is defined }} {{ cycler('a', 'b').next() }} {{ cycler('a', 'b').current }}
{{ text | replace('quick', 'slow') | upper | length + 1 }}
{{ (text | upper).lower() }} {{ 'a' | upper ~ 'b' | upper }} {{ -1 | abs }} {{ 1 + -1 | abs }}
{{ 'a' 'b' | upper }} {{ ['a', 'b'] | map('upper') | join('-') | lower }}
{{ messages[0]['role'] + ': ' + messages[0]['content'] }} {{ messages[-1].content }} {{ messages[::-1][0].role }} {{ messages[1:] | length }} {{ (messages | last).role }}
{{ messages[2].tool_calls[0].function.arguments | tojson }} {{ messages[2]['tool_calls'][0]['function']['arguments']['y'] }} {{ messages[2].content }}
{{ messages[2].content | trim }}
{{ messages[2].content.strip() }}
{{ messages[9].role }}
{{ messages | map(attribute='role') | join(' ') }} {{ messages | selectattr('content') | list | length }} {{ messages | map(attribute='content') | select('string') | map('trim') | list }}
{{ words | join(', ') if words else 'none' }} {{ words is string }} {{ words is iterable and words is not mapping }}
{{ ('a', 'b') | join }} {{ ('a' ~ 'b',)[0] }}
{{ {'x': [1, 2, {'y': (3, 4)}]}.x[2]['y'][1] }}
{{ [1, 2, 3][1:][0] }} {{ 'abc'[1:].upper() }} {{ 'a b c'.split()[1] }} {{ ('x' * 3).replace('x', 'yz')[2:4] }}
{{ 1.0 == 1 }} {{ 0.1 + 0.2 }} {{ 1e308 * 10 }} {{ 3.0 * 2 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 10 ** 20 }} {{ 2.0 ** 3 }} {{ 5.0 // 2 }}
{{ 9223372036854775807 + 1 }} {{ -9223372036854775808 - 1 }} {{ 99999999999 * 99999999999 }}
{{ true == 1 }} {{ [true] == [1] }} {{ {'a': 1.0} == {'a': 1} }} {{ 'a' == 'a ' }} {{ [] == () }}
{{ words | tojson | length }} {{ {'a': words[:2]} | tojson }} {{ '\u2028 </script>' | tojson }}
{{ caller is defined }} {{ loop is defined }}
{{ person.nested['a'].b + 1 }} {{ person.langs | join('/') }} {{ person['lan' ~ 'gs'][0] }}
{{ [words, numbers] | map('first') | list }} {{ [[3, 1], [2]] | map('sort') | list }}
{{ none | default('x') is none }} {{ none | string | length }} {{ true | string | lower }}
{{ 'é'.upper() }} {{ 'ÀÉ' | lower }} {{ 'ǆ'.title() }} {{ 'ﬁ'.upper() }} {{ 'ŉ' | upper }} {{ 'İ'.lower() | length }}
{{ '\n' in 'a\nb' }} {{ 'a\\nb' }} {{ "\\" }} {{ '\\\\' | length }}
{{ foo.bar is defined }}
{{ person.foo.bar is defined }}
{{ person.foo is defined and person.foo.bar }}|{{ person.foo and person.foo.bar }}
{{ [1, 2,] }} {{ {'a': 1,} }} {{ range(3,) | list }}
{{ words[0][0] }} {{ words[0].upper()[0] }} {{ ([1, 2])[0] }} {{ (1)  }}
{{ words is defined and words|length > 3 and words[0] == 'beta' }}
{{ "a" if 1 > 2 else "b" if 2 > 3 else "c" }} {{ ("a" if yes else "b") ~ "!" }} {{ not 1 == 2 }} {{ not (1 == 1) }}
{{ 3 is odd and 'a' in 'abc' and not no }} {{ 1 if 2 is even else 0 }} {{ 1 if 'a' is in ['a'] else 0 }}
{{ namespace(x=[1, 2]).x | join }} {{ [namespace(x=1)] | map(attribute='x') | list }}
{{ person | tojson(indent=none) }} {{ [] | tojson(indent=2) }} {{ [1, [2]] | tojson(indent=0) }}
{{ 'x' | upper() }} {{ 'x' | upper(1) }}
{{ 'abc' | map('upper') | list }} {{ {'b': 1, 'a': 2} | sort }} {{ {'b': 1} | join }} {{ {'b': 1, 'a': 2} | map('upper') | list }}
{{ cycler() }}
"""

# Templates of several lines, with a name each.
BLOCKS = {
    "trim_blocks and lstrip_blocks": "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n",
    "no trimming around output": "a\n  {{ 1 }}\n  b  {{ 2 }}\n",
    "minus on both sides": "a  \n {%- if yes -%} \n b \n {%- endif -%} \n c",
    "minus at output": "a \n {{- 1 -}} \n b",
    "plus keeps the indentation": "a\n  {%+ if yes %}b{% endif %}\nc",
    "plus keeps the newline": "{% if yes +%}\nb{% endif +%}\nc",
    "comment lines": "a\n  {# one #}\nb {# two #} c\n{#- three -#}\n d",
    "comment with tags inside": "{# {% if %} {{ x }} #}z",
    "tag after text is not stripped": "a {% if yes %} b {% endif %} c",
    "tag after output is not stripped": "{{ 1 }}  {% if yes %}x{% endif %}",
    "two tags in a line": "  {% if yes %}  {% if yes %}  x\n  {% endif %}  {% endif %}\ny",
    "crlf": "a\r\n{% if yes %}\r\nb\r\n{% endif %}\r\nc\r\n",
    "one final newline goes": "a\n\n\n",
    "only a newline": "\n",
    "raw": "{% raw %}{{ x }} {% if %}{% endraw %}!",
    "raw with white space": "a\n  {% raw -%}\n  {{ x }}\n  {%- endraw %}\nb",
    "raw keeps its first newline": "{% raw %}\nx\n{% endraw %}\ny",
    "braces that are no tags": "{ a } {a{ }} %} #} {",
    "nested braces in output": "{{ {'a': {'b': 1}}['a'] }}}",
    "if elif else": "{% for n in numbers %}{% if n > 5 %}big{% elif n == 3 %}three{% elif n is even %}even{% else %}other{% endif %},{% endfor %}",
    "if without else": "{% if no %}x{% endif %}{% if missing %}y{% endif %}{% if words %}z{% endif %}",
    "for and loop": "{% for w in words %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }} {{ w }}\n{% endfor %}",
    "previtem and nextitem": "{% for n in numbers %}{{ loop.previtem }}<{{ n }}>{{ loop.nextitem }} {{ loop.previtem is defined }} {% endfor %}",
    "loop cycle and changed": "{% for n in [1, 1, 2, 2, 1] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(n) }} {% endfor %}",
    "for else": "{% for x in [] %}{{ x }}{% else %}none{% endfor %}{% for x in missing %}{% else %} undefined{% endfor %}",
    "for over none": "{% for x in none %}{% endfor %}",
    "for over a number": "{% for x in 5 %}{% endfor %}",
    "for over a dict": "{% for k in person %}{{ k }} {% endfor %}{% for k, v in person.items() %}{{ k }}={{ v }};{% endfor %}",
    "for over a string": "{% for c in 'h\u00e9!' %}{{ c }}.{% endfor %}",
    "for with filter": "{% for n in numbers if n > 2 %}{{ loop.index }}:{{ n }} {% endfor %}",
    "for with filter and else": "{% for n in numbers if n > 99 %}{{ n }}{% else %}none{% endfor %}",
    "unpacking": "{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "unpacking too few": "{% for a, b in [(1,)] %}{% endfor %}",
    "unpacking too many": "{% set a, b = (1, 2, 3) %}",
    "nested loops": "{% for a in [1, 2] %}{% set outer = loop %}{% for b in [1, 2] %}{{ outer.index }}{{ loop.index }}{{ a * b }} {% endfor %}{% endfor %}",
    "break": "{% for n in numbers %}{% if n == 2 %}{% break %}{% endif %}{{ n }}{% endfor %}!",
    "continue": "{% for n in numbers %}{% if n == 2 %}{% continue %}{% endif %}{{ n }} {% endfor %}!",
    "break in nested if": "{% for a in [1, 2, 3] %}{% for b in [1, 2, 3] %}{% if b > a %}{% break %}{% endif %}{{ a }}{{ b }} {% endfor %}{% endfor %}",
    "assignment in a loop is local": "{% set x = 1 %}{% for n in [1, 2] %}{{ x }}{% set x = x + n %}{{ x }} {% endfor %}{{ x }}",
    "assignment in an if is not": "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}{% if no %}{% set y = 2 %}{% endif %}{{ y is defined }}",
    "namespace": "{% set ns = namespace(n=0, s='') %}{% for n in numbers %}{% set ns.n = ns.n + n %}{% set ns.s = ns.s ~ n %}{% endfor %}{{ ns.n }} {{ ns.s }} {{ ns.zz is defined }}",
    "namespace in an inner scope": "{% set ns = namespace(found=false) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}",
    "set attribute of no namespace": "{% set d = {} %}{% set d.x = 1 %}",
    "set tuple": "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t }}",
    "set block": "{% set x %}\n  a{{ 1 }}\n{% endset %}[{{ x }}]",
    "set block with filter": "{% set x | upper | trim %}  abc {% endset %}[{{ x }}]",
    "set block on namespace": "{% set ns = namespace() %}{% set ns.x %}abc{% endset %}{{ ns.x }}",
    "filter block": "{% filter upper | replace('A', 'x') %}abc {{ 'def' }}{% endfilter %}",
    "with": "{% with a = 1, b = 2 %}{{ a + b }}{% set c = 5 %}{% endwith %}{{ a is defined }}{{ c is defined }}",
    "with sees the outside": "{% set a = 5 %}{% with a = a + 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "macro": "{% macro f(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(1, c='z') }} {{ f(c=1, a=2) }}",
    "macro default from parameter": "{% macro f(a, b=a * 2) %}{{ a }}{{ b }}{% endmacro %}{{ f(3) }}",
    "macro without an argument": "{% macro f(a) %}[{{ a }}]{{ a is defined }}{% endmacro %}{{ f() }}",
    "macro uses a missing argument": "{% macro f(a) %}{{ a.x }}{% endmacro %}{{ f() }}",
    "macro with too many": "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
    "macro with unknown keyword": "{% macro f(a) %}{% endmacro %}{{ f(z=2) }}",
    "macro varargs and kwargs": "{% macro f(a) %}{{ a }} {{ varargs }} {{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}",
    "macro splat": "{% macro f(a, b, c=0) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*[1, 2]) }} {{ f(1, **{'b': 5, 'c': 6}) }}",
    "macro sees the top": "{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% set x = 2 %}{{ f() }}",
    "macro keeps its variables": "{% macro f() %}{% set y = 5 %}{% endmacro %}{{ f() }}{{ y is defined }}",
    "macro recursion": "{% macro f(n) %}{{ n }}{% if n > 0 %} {{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "macro in a loop": "{% macro item(x) %}<{{ x }}>{% endmacro %}{% for n in numbers %}{{ item(n) }}{% endfor %}",
    "macro calls a later macro": "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}",
    "macro result is text": "{% macro f() %} x {% endmacro %}{{ f() | trim }}|{{ f() is string }}|{{ f().strip() }}",
    "macro white space": "{% macro f(x) -%}\n  {{ x }}\n{%- endmacro %}\n[{{ f(1) }}]",
    "macro does not see the loop": "{% macro f() %}{{ loop is defined }}{{ n is defined }}{% endmacro %}{% for n in [1] %}{{ f() }}{% endfor %}",
    "call block": "{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}in {{ text }}{% endcall %}",
    "call block with arguments": "{% macro each(xs) %}{% for x in xs %}{{ caller(x, loop.index) }};{% endfor %}{% endmacro %}{% call(v, i) each(words) %}{{ i }}={{ v }}{% endcall %}",
    "caller is defined": "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}{% call f() %}{% endcall %}",
    "call a macro without caller": "{% macro f() %}x{% endmacro %}{% call f() %}{% endcall %}",
    "macro in namespace": "{% macro f(x) %}{{ x }}!{% endmacro %}{% set ns = namespace(g=f) %}{{ ns.g(1) }}",
    "generation tag": "a{% generation %} b {{ 1 }}{% endgeneration %}\nc",
    "joiner": "{% set sep = joiner(' | ') %}{% for w in words %}{{ sep() }}{{ w }}{% endfor %}",
    "generator is used up": "{% set g = words | map('upper') %}{{ g | join(',') }}|{{ g | join(',') }}|",
    "iterating a set string": "{% set s %}ab{% endset %}{% for c in s %}{{ c }};{% endfor %}",
    "output of a tag only": "{% if yes %}{% endif %}",
    "conditional expression in for": "{% for x in (words if yes else numbers) %}{{ x }}{% endfor %}",
    "tuple in for": "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "loop variable survives not": "{% for q in [1] %}{% endfor %}{{ q is defined }}",
    "loop in else": "{% for a in [1] %}{% for b in [] %}{% else %}{{ loop.index }}{% endfor %}{% endfor %}",
    "error in an untaken branch": "{% if no %}{{ missing.x.y }}{{ 1 / 0 }}{% endif %}ok",
    "unknown filter in an untaken branch": "{% if no %}{{ 1 | nope }}{% endif %}ok",
    "raise in a branch": "{% if messages[0].role != 'user' %}{{ raise_exception('must start with user') }}{% endif %}",
    "alternating roles": "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}",
    "long concatenation": "{{ 'a' + 'b' + 'c' + 'd' + 'e' + 'f' + 'g' + 'h' }}{{ '<|x|>' + messages[0].role + '\\n' + messages[0].content }}",
    "string with tag in it": "{{ '{% if %}' }}{{ '}}' }}{{ \"{{ x }}\" }}",
    "newline in a string": "{{ 'a\n  b' }}",
    "tag over several lines": "{%\n  if yes\n  and words\n%}\nx{%\nendif\n%}",
    "dict over several lines": "{% set d = {\n  'a': 1,\n  'b': [\n    1, 2\n  ]\n} %}{{ d }}",
    "elif after else content": "{% if no %}1{% elif yes %}2{% else %}3{% endif %}",
    "whitespace only between tags": "{% for n in [1, 2] %} {% endfor %}|{% for n in [1, 2] -%} {% endfor %}|",
    "unicode white space before a tag": "a\u00a0\n\u3000{% if yes %}x{% endif %}",
    "tab indentation": "a\n\t{% if yes %}\n\tb\n\t{% endif %}\n",
    "minus with plus": "x \n {%- if yes +%}\ny{% endif %}",
    "deep nesting": "{% for a in [1, 2] %}{% if a == 2 %}{% for b in [1, 2] %}{% if b == 2 %}{% for c in 'xy' %}{{ a }}{{ b }}{{ c }}{% endfor %}{% endif %}{% endfor %}{% endif %}{% endfor %}",
    "system message split off": "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{{ system }}|{{ rest | length }}",
    "schema as types": "{% macro t(s) %}{% if s.type == 'array' %}{{ t(s['items']) }}[]{% elif s.type is iterable and s.type is not string %}{{ s.type | join(' | ') }}{% else %}{{ s.type }}{% endif %}{% endmacro %}{{ t({'type': 'array', 'items': {'type': ['string', 'null']}}) }}",
    "last user index": "{% set ns = namespace(i=-1) %}{% for m in messages[::-1] %}{% if ns.i == -1 and m.role == 'user' %}{% set ns.i = messages | length - 1 - loop.index0 %}{% endif %}{% endfor %}{{ ns.i }}",
    "tool calls": "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ '\\n' if not loop.first }}{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}{% endfor %}{% endif %}{% endfor %}",
    "content parts": "{% for p in [{'type': 'text', 'text': 'a'}, {'type': 'image'}] %}{% if p.type == 'text' %}{{ p.text }}{% elif p['type'] == 'image' %}<image>{% endif %}{% endfor %}",
}


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: marks the answer; here it only renders it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    result = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    result.filters["tojson"] = tojson
    result.globals["raise_exception"] = raise_exception
    result.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return result


def expected(template):
    try:
        return {"text": environment().from_string(template).render(**DATA)}
    except jinja2.TemplateSyntaxError as error:
        if "No filter named" in str(error) or "No test named" in str(error):
            return {"error": "type"}
        return {"error": "syntax", "line": error.lineno}
    except jinja2.UndefinedError:
        return {"error": "undefined"}
    except jinja2.exceptions.SecurityError:
        return {"error": "undefined"}  # a method that the sandbox hides
    except jinja2.TemplateRuntimeError:
        return {"error": "type"}
    except jinja2.TemplateError as error:
        return {"error": "template", "message": str(error)}
    except SyntaxError:  # of the Python code that a stray {% break %} becomes
        return {"error": "syntax"}
    except OverflowError:
        return {"error": "limit"}
    except Exception:  # whatever Python raises inside an expression
        return {"error": "type"}


BROKEN = r"""
{{ 1 +
{% if x %}
{{ 'abc }}
{% for x %}{% endfor %}
{% endif %}
{% for x in y %}
{{ a b }}
{{ (1 }}
{% set 1 = 2 %}
{% unknown %}
{# never closed
{% raw %} x
{{ }}
{% if %}{% endif %}
{% break %}
{% macro f(a=1, b) %}{% endmacro %}
{{ f(a=1, 2) }}
{{ a[ }}
{% set true = 1 %}
a}} {{ ] }}
{% else %}
{{ 1 is 2 }}
{{ x | }}
{{ x. }}
"""


def main():
    cases = []
    for line in ONE_LINERS.strip().split("\n"):
        cases.append({"name": line, "template": line, **expected(line)})
    for name, template in BLOCKS.items():
        cases.append({"name": name, "template": template, **expected(template)})
    for line in BROKEN.strip().split("\n"):
        cases.append({"name": "broken: " + line, "template": line, **expected(line)})
    path = Path(__file__).resolve().parents[2] / "tests/golden/jinja_cases.json"
    with path.open("w", encoding="utf-8") as file:
        file.write('{"jinja2": ' + json.dumps(jinja2.__version__) + ', "strftime_now_date": "2026-01-31",\n')
        file.write('"variables": ' + json.dumps(DATA) + ',\n"cases": [\n')
        file.write(",\n".join(json.dumps(case) for case in cases) + "\n]}\n")
    print(f"{len(cases)} cases, {sum('error' in case for case in cases)} of them errors")


if __name__ == "__main__":
    main()
