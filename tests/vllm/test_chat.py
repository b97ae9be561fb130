"""What chat templates are written for is transformers: each of its additions to Jinja has the same effect here."""

from __future__ import annotations

import json

from runner.text.chat import ChatTemplate
from tests.vllm.conftest import run_script

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "<é> \N{GRINNING FACE}\n"},
    {"role": "assistant", "content": " so it is"},
    {"role": "user", "content": "why?"},
]
EACH = "{%- for message in messages %}"
TEMPLATES = [
    "{{ messages | tojson }}",
    "{{ messages[1] | tojson(ensure_ascii=True, indent=2, sort_keys=True) }}",
    "{{ messages[1] | tojson(separators=(',', ':')) }}",
    "{{ messages[1] | tojson(false, 4) }}",
    "{{ strftime_now('%%d %%B') }}{{ tools is none }}",
    f"{EACH}\n  {{% if loop.index0 == 2 %}}{{% break %}}{{% endif %}}\n  {{{{ message.content }}}}\n{{% endfor %}}",
    f"{EACH}{{% if loop.first %}}{{% continue %}}{{% endif %}}{{{{ message['role'] }}}} {{% endfor %}}x\n\n",
    "{%- set found = namespace(n=0) %}" + EACH + "{% set found.n = found.n + 1 %}{% endfor %}{{ found.n }}",
    "{% set one = dict(a=1) %}{{ one.items() | list }}{{ one | tojson }}",
    EACH + "{% set said = 1 %}{%- generation -%} {% set said = 2 %}{{ message.content | trim }}"
    "{{ said }} {% endgeneration %}{{ said }}\n{% endfor %}",
    EACH + "{% generation %}{% for word in message.content.split() %}{% if word == 'it' %}{% break %}{% endif %}"
    "{{ word }}{{ loop.index }}{% endfor %}{% endgeneration %}{% endfor %}",
    "{% macro turn(one) %}{% generation %}{{ one.content }}{% endgeneration %}{% endmacro %}"
    + EACH
    + "{{ turn(message) }}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
]  # fmt: skip


def test_prompts_are_those_of_transformers(tmp_path):
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps([(template, MESSAGES) for template in TEMPLATES]))
    expected = run_script("tests/vllm/transformers_chat.py", tmp_path, str(cases))
    assert [ChatTemplate(template, {}).render(MESSAGES) for template in TEMPLATES] == expected
