"""Make OCI layers and images from pinned packages, the same bytes everywhere, and deliver them."""
