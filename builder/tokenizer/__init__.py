"""tokenizer.json for models that have none.

`step.py` is the step of a build. It runs `__main__.py` in the converter's environment, which makes the file
(`from_slow.py`, or `from_tekken.py` for a tekken.json) and records what the model's own tokenizer makes of a
corpus; `step.py` then compares that with what is served.
"""
