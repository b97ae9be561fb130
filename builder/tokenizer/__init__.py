"""The tokenizer.json to serve: as transformers would make it, for models with or without one.

`step.py` is the step of a build. For a model that has a tokenizer.json, `configured.py` applies what the
files beside it say (`settings.py`). For one that has none, the step runs `__main__.py` in the converter's
environment, which makes the file (`from_slow.py`, or `from_tekken.py` for a tekken.json) and records what the
model's own tokenizer makes of a corpus; `step.py` then compares that with what is served.
"""
