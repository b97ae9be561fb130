"""One engine on several hosts: how they find one another, and what the first tells the others."""
