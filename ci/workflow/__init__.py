"""Run the repository's GitHub workflows on this machine, as far as that can be done without GitHub.

Every `run:` step is executed with the shell that GitHub uses for it: `sh -e` in containers, `bash -e`
outside, and `bash --noprofile --norc -eo pipefail` if the step says `shell: bash`. Actions have stand-ins
(see actions.py); one without is an error. Containers are this machine itself.
"""
