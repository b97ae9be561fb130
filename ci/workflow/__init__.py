"""Run the repository's GitHub workflows on this machine, as far as that can be done without GitHub.

Every `run:` step is executed under the shell that GitHub gives it: `sh -e` in containers, `bash -e` outside,
and `bash --noprofile --norc -eo pipefail` where the step says `shell: bash`. Actions have stand-ins (see
actions.py); one that has none is an error. Containers are this machine itself.
"""
