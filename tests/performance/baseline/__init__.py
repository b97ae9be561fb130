"""The path of a token in the original cog-triton, rewritten: what "x times the original" is measured against.

Cog's server runs a predictor (predictor.py), which posts to Triton's HTTP endpoint and reads server-sent events.
Triton runs an ensemble: a model in Python cuts the prompt into tokens (preprocessing.py), our bridge hands them to
the same mock engine, and another model in Python (postprocessing.py) turns each response into text. The predictor
then decodes the whole sequence so far once more for each token, and yields what is new of it.

Kept from the original is this algorithm, on what it ran on: Cog, httpx, tokenizers and Triton's Python backend.
It is faster here than it was there: tokenizers without transformers around it, and Cog's server of today.
"""
