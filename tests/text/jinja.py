#!/usr/bin/env python3
"""What Python's Jinja makes of templates: python jinja.py > jinja.json (jinja2 3.1)."""

import json

from jinja2 import Environment
from jinja2.ext import loopcontrols

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]

CALL = {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"city": "Bern"}}}
OTHER = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Genève", "days": 2}}}

# In the style of Qwen 2.5 and 3: calls in tags, results of tools in the user's turn.
QWEN = """{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n' }}{%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}\
{{- '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + message.content }}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and message.content) or not loop.first %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}\
{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

# In the style of Llama 3: one call at a time, results from a role of their own.
LLAMA = """{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception('only one call') }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" + "<|eot_id|>" }}
    {%- elif message.role == 'tool' or message.role == 'ipython' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}
            {{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

# In the style of SmolLM3: contents alone, results in the user's turn.
SMOLLM = """{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- generation %}{{- '<|im_start|>' + message.role + '\\n<think>\\n\\n</think>\\n' + content.lstrip('\\n') + '<|im_end|>\\n' }}\
{%- endgeneration %}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

# In the style of Mistral: calls as one list, results by the call's id and the tool's name.
MISTRAL = """{%- for message in messages %}
    {%- if message.role == 'user' %}{{- '[INST] ' + message.content + '[/INST]' }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- '[TOOL_CALLS][' }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function | tojson %}
            {{- out[:-1] }}
            {%- if call.id is defined %}{{- ', "id": "' + call.id + '"' }}{%- endif %}
            {{- '}' }}{%- if not loop.last %}{{- ', ' }}{%- else %}{{- ']' + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message.role == 'assistant' %}{{- ' ' + message.content + eos_token }}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content | string + ', "call_id": "' + message.tool_call_id + '", "name": "' \
+ message.name + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}"""

USER = {"role": "user", "content": "How is it in Bern?"}
RESULT = {"role": "tool", "content": "{\"sky\": \"grey\"}"}
NAMED = {**RESULT, "name": "weather", "tool_call_id": "call00001"}
LAST = {"role": "assistant", "content": "Grey."}


def calling(content, *calls):
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


CONVERSATIONS = [
    (QWEN, [USER, calling("", CALL), RESULT, LAST, USER], TOOLS),
    (QWEN, [USER, calling("Let me see.", CALL, OTHER), RESULT, RESULT], TOOLS),
    (QWEN, [USER, {"role": "assistant", "content": "It rains."}, USER], None),
    (LLAMA, [USER, calling("", CALL), RESULT, LAST, USER], None),
    (SMOLLM, [USER, {"role": "assistant", "content": "<tool_call>{}</tool_call>"}, RESULT, LAST, USER], None),
    (MISTRAL, [USER, calling("", CALL), NAMED, LAST, USER], None),
]

# Methods and filters, over no messages.
EXPRESSIONS = r"""
{{ 'ab'.zfill(5) }}|{{ '-7'.zfill(5) }}|{{ '+7'.zfill(4) }}|{{ 'abc'.zfill(2) }}|{{ ''.zfill(2) }}|{{ '--5'.zfill(5) }}
{{ 'ab'.ljust(5) }}|{{ 'ab'.ljust(5, '*') }}|{{ 'ab'.rjust(5) }}|{{ 'é'.rjust(3, '日') }}|{{ 'abc'.ljust(1) }}|{{ 'a'.rjust(-1) }}
{{ 'ab'.center(5) }}|{{ 'ab'.center(5, '*') }}|{{ 'a'.center(4, '*') }}|{{ 'abc'.center(6,'*') }}|{{ 'ab'.center(7,'*') }}|{{ ''.center(3,'x') }}
{{ [1, 2, 1].count(1) }}|{{ ['a', 'b', 'a'].index('a') }}|{{ ['a', 'b', 'a'].index('a', 1) }}|{{ [[1], [2]].index([2]) }}|{{ [1, 2, 1].index(1, -1) }}
{{ 'a b&c=d/é?'|urlencode }}|{{ {'a': 'b c', 'd': 1}|urlencode }}|{{ [('x', 'y/z'), ('q', 'é')]|urlencode }}|{{ 5|urlencode }}|{{ '~-._'|urlencode }}
{{ ' a  b c '.rsplit(none, 1)|join('+') }}|{{ ' a b '.rsplit()|join('+') }}|{{ 'a,b,c'.split(sep=',')|join('+') }}|{{ 'a,b,c'.split(',', maxsplit=1)|join('+') }}|{{ 'a,b,c'.rsplit(sep=',', maxsplit=1)|join('+') }}
{{ 'abcabc'.rindex('b') }}|{{ 'abcabc'.find('a', 1) }}|{{ 'éabc'.find('b', -3, 9) }}|{{ 'abc'.rfind('a', 1) }}|{{ 'abc'.startswith('b', 1) }}|{{ 'abc'.endswith('b', 0, 2) }}|{{ 'aaa'.count('a', 1) }}|{{ 'abab'.index('a', 1) }}
{{ "they're OLD x2y".title() }}|{{ 'a\r\nb\x0bc\rd\n\ne'.splitlines()|join('+') }}|{{ 'a\nb'.splitlines(true)|length }}|{{ ''.splitlines()|length }}
{% set j = joiner(', ') %}{% set c = cycler('a', 'b') %}{{ j() }}{{ c.next() }}{{ j() }}{{ c.next() }}{{ j() }}{{ c.next() }}|{{ '<b>x</b> y'|striptags }}
{% set ns = namespace(x=[], n=0) %}{% for k, v in [('a', 1), ('b', 2)] %}{% set ns.x = ns.x + [k] %}{% set ns.n = ns.n + v %}{% endfor %}{{ ns.x|join }}{{ ns.n }}{% set a, b = 'x=%}', '{%' %}{{ a ~ b }}{% with p = a, q = [1, (2)] %}{{ p }}{{ q[1] }}{% endwith %}
{% macro f(x, y='=,') -%} {{ x }}{{ y }}{{ z is defined }}{{ caller(x) if caller else '' }} {%- endmacro %}{{ f('p') }}{{ f('p', y=2) }}{% call(v) f('q') %}<{{ v }}>{% endcall %}{% for x in [[1, [2]]] recursive %}{{ x }}{{ loop(x) if x is iterable }}{% endfor %}
"""


EXPRESSIONS += r"""{% macro g(a) %}[{{ caller() }}{{ a }}]{% endmacro %}{% set x = 4 %}{% call g(x) %}b{{ x }}{% endcall %}{% call g(a=x) %}{% endcall %}{% call g(1) %}{% endcall %}
{% set o = namespace(v=1) %}{% set p = namespace(l=[], c=o) %}{% set p.l = p.l + [o] %}{% set p.d = o %}{{ p.l[0].v }}{{ p.c.v }}{{ p.d.v }}
{% set ns = namespace(a='') %}{% set ns.a %} x {% endset %}<{{ ns.a }}>{% set y | upper %}y{% endset %}{{ y }}{% set é = 2 %}{{ é }}
{{ [3, 1, 2]|sort|join('+') }}{{ [1, 2]|sum }}{{ [1, 1]|unique|list|length }}{{ '%s-%d'|format('a', 3) }}{{ '{}{a}'.format(1, a='b') }}{{ ', '.join(['a', 'b']) }}{{ [{'a': 1}]|sum(attribute='a') }}{{ ['b', 'A']|sort(case_sensitive=true)|join }}
"""


def environment():
    env = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    # As transformers has it: nothing escaped for HTML.
    env.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    return env


def rendered(source, messages, tools):
    # The tags mark text, and change none.
    source = source.replace("{%- generation %}", "{%- if true %}").replace("{%- endgeneration %}", "{%- endif %}")
    template = environment().from_string(source)
    return template.render(messages=messages, tools=tools, add_generation_prompt=True, bos_token="<s>", eos_token="</s>")


# Lines end in other ways, too.
CARRIED = [("<\r\n{% set x = 1 %}\r\n{{ x }}\r>\n.", [], None)]
cases = CONVERSATIONS + CARRIED + [(line, [], None) for line in EXPRESSIONS.strip().splitlines()]
print(json.dumps([
    {"source": source, "messages": messages, "tools": tools or [], "expected": rendered(source, messages, tools)}
    for source, messages, tools in cases
], ensure_ascii=False, indent=1))
