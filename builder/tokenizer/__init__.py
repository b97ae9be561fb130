"""tokenizer.json for models that have none.

`step.py` is the step of a build. It runs `__main__.py` in the environment of the converter, which makes the
file and says what the model's own tokenizer makes of a corpus; `step.py` then compares with what is served.
"""
