"""Make OCI layers and images from pinned packages, the same bytes everywhere, and hand them on."""
