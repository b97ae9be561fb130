"""Run in the tokenizer converter's environment: what transformers makes of tokenizers.

Reads `{"folders": [...], "texts": [...]}` from standard input; writes a list with an entry per folder: null if
transformers cannot load it, else `ids` and `all_ids` (with special tokens) of each text, and `decoded`.
"""

import json
import os
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "critical"}

from transformers import AutoTokenizer


def answers(folder, texts):
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        backend = tokenizer.backend_tokenizer
        ids = [backend.encode(text, add_special_tokens=False).ids for text in texts]
        return {
            "ids": ids,
            "all_ids": [backend.encode(text).ids for text in texts],
            "decoded": [backend.decode(one, skip_special_tokens=True) for one in ids],
        }
    except BaseException as error:  # the library's panics are none of Exception
        sys.stderr.write(f"{folder}: {error}\n")
        return None


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    json.dump([answers(folder, asked["texts"]) for folder in asked["folders"]], sys.stdout)
