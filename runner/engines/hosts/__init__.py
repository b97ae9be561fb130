"""One engine on several hosts: how they find each other, and what the first tells the others."""
