"""What every part uses."""

VERSION = "0.1.0"
