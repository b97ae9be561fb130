"""What is wrong with a config, before its build begins."""

from shared.hub_settings import check_hub_settings

check_hub_settings()  # as builder.sources does: some modules here import the hub's library before it
