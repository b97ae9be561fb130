"""Where models come from: the hub, folders, tars, Triton's model repositories."""

from shared.hub_settings import check_hub_settings

check_hub_settings()  # what is imported from here on imports the hub's library
