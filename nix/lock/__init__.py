"""The tool that writes nix/locks: what the images are made of, by name, version, file and sha256.

`make lock` runs it; docs/locks.md says what each file is. A problem is reported in one sentence, and leaves
the locks unchanged.
"""
