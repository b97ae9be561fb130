"""Prompts of transformers' own chat templates: `transformers_chat.py RESULT CASES`, in vLLM's environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template


def main() -> None:
    result, cases = map(Path, sys.argv[1:])
    prompts = []
    for template, messages in json.loads(cases.read_bytes()):
        rendered, _ = render_jinja_template([messages], chat_template=template, add_generation_prompt=True)
        prompts += rendered
    result.write_text(json.dumps(prompts))


if __name__ == "__main__":
    main()
